"""The languages we parse: which nodes of their grammars import, define, wrap or declare."""

from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module

from tree_sitter import Language, Parser


@dataclass(frozen=True, slots=True)
class Grammar:
    """Node types of one language, by what they mean to a reader.

    `definitions` maps a node type to the kind of its block; those in `with_body` count only
    when they have one. `wrappers` hold a definition with more of its header. `members` are
    declarations whose first line stays though they open no block. `calls` are the names of
    functions whose call is an import.
    """

    module: str
    imports: frozenset[str]
    definitions: dict[str, str]
    wrappers: frozenset[str] = frozenset()
    with_body: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    entry: str = "language"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SCRIPT_DEFINITIONS = {
    "function_declaration": "function",
    "generator_function_declaration": "function",
    "function_signature": "function",
    "class_declaration": "class",
    "abstract_class_declaration": "class",
    "class": "class",
    "method_definition": "method",
    "abstract_method_signature": "method",
    "interface_declaration": "type",
    "enum_declaration": "type",
    "type_alias_declaration": "type",
    "internal_module": "namespace",
    "module": "namespace",
    # These define something only when their value is a function or a class.
    "variable_declarator": "assigned",
    "assignment_expression": "assigned",
    "pair": "assigned",
    "field_definition": "assigned",
    "public_field_definition": "assigned",
    "export_statement": "assigned",
}


def _script(module: str, entry: str = "language") -> Grammar:
    return Grammar(
        module,
        imports=_set("import_statement"),
        definitions=_SCRIPT_DEFINITIONS,
        wrappers=_set("export_statement ambient_declaration"),
        with_body=_set("class"),
        attributes=_set("decorator"),
        calls=_set("require"),
        entry=entry,
    )


_C = Grammar(
    "tree_sitter_c",
    imports=_set("preproc_include"),
    definitions={
        "function_definition": "function",
        "struct_specifier": "type",
        "union_specifier": "type",
        "enum_specifier": "type",
        "type_definition": "type",
    },
    with_body=_set("struct_specifier union_specifier enum_specifier"),
)
_CPP = Grammar(
    "tree_sitter_cpp",
    imports=_set("preproc_include using_declaration import_declaration namespace_alias_definition"),
    definitions=_C.definitions
    | {
        "class_specifier": "class",
        "struct_specifier": "class",
        "namespace_definition": "namespace",
        "concept_definition": "type",
    },
    wrappers=_set("template_declaration"),
    with_body=_set("struct_specifier union_specifier enum_specifier class_specifier"),
)

GRAMMARS: dict[str, Grammar] = {
    "python": Grammar(
        "tree_sitter_python",
        imports=_set("import_statement import_from_statement future_import_statement"),
        definitions={"function_definition": "function", "class_definition": "class"},
        wrappers=_set("decorated_definition"),
    ),
    "javascript": _script("tree_sitter_javascript"),
    "typescript": _script("tree_sitter_typescript", "language_typescript"),
    "tsx": _script("tree_sitter_typescript", "language_tsx"),
    "go": Grammar(
        "tree_sitter_go",
        imports=_set("package_clause import_declaration"),
        definitions={
            "function_declaration": "function",
            "method_declaration": "method",
            "type_declaration": "type",
        },
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        imports=_set("use_declaration extern_crate_declaration"),
        definitions={
            "function_item": "function",
            "function_signature_item": "function",
            "struct_item": "type",
            "enum_item": "type",
            "union_item": "type",
            "trait_item": "class",
            "impl_item": "class",
            "mod_item": "namespace",
            "type_item": "type",
            "macro_definition": "macro",
        },
        attributes=_set("attribute_item"),
    ),
    "java": Grammar(
        "tree_sitter_java",
        imports=_set("package_declaration import_declaration"),
        definitions={
            "class_declaration": "class",
            "interface_declaration": "class",
            "enum_declaration": "class",
            "record_declaration": "class",
            "annotation_type_declaration": "class",
            "method_declaration": "method",
            "constructor_declaration": "method",
            "compact_constructor_declaration": "method",
        },
        members=_set("field_declaration"),
    ),
    "c": _C,
    "cpp": _CPP,
    "csharp": Grammar(
        "tree_sitter_c_sharp",
        imports=_set("using_directive extern_alias_directive file_scoped_namespace_declaration"),
        definitions={
            "namespace_declaration": "namespace",
            "class_declaration": "class",
            "struct_declaration": "class",
            "interface_declaration": "class",
            "record_declaration": "class",
            "enum_declaration": "type",
            "delegate_declaration": "type",
            "method_declaration": "method",
            "constructor_declaration": "method",
            "destructor_declaration": "method",
            "operator_declaration": "method",
            "conversion_operator_declaration": "method",
            "indexer_declaration": "method",
            "property_declaration": "method",
            "event_declaration": "method",
            "local_function_statement": "function",
        },
        members=_set("field_declaration event_field_declaration"),
    ),
    "ruby": Grammar(
        "tree_sitter_ruby",
        imports=frozenset(),
        definitions={
            "method": "function",
            "singleton_method": "method",
            "class": "class",
            "module": "namespace",
            "singleton_class": "class",
        },
        calls=_set("require require_relative load autoload include extend prepend"),
    ),
    "php": Grammar(
        "tree_sitter_php",
        imports=_set(
            "namespace_use_declaration use_declaration php_tag require_expression require_once_expression"
            " include_expression include_once_expression"
        ),
        definitions={
            "namespace_definition": "namespace",
            "function_definition": "function",
            "method_declaration": "method",
            "class_declaration": "class",
            "interface_declaration": "class",
            "trait_declaration": "class",
            "enum_declaration": "class",
        },
        wrappers=_set("expression_statement"),
        members=_set("property_declaration const_declaration"),
        entry="language_php",
    ),
    "bash": Grammar(
        "tree_sitter_bash",
        imports=frozenset(),
        definitions={"function_definition": "function"},
        calls=_set("source ."),
    ),
}


GRAMMARS["php-without-tags"] = replace(GRAMMARS["php"], entry="language_php_only")


@cache
def parser(name: str) -> Parser:
    """The parser of a language; its grammar is loaded when first needed (30 ms for all of them)."""
    grammar = GRAMMARS[name]
    return Parser(Language(getattr(import_module(grammar.module), grammar.entry)()))
