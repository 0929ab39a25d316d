import pytest
from tests.features.pruning.structure.pictures import block, drawn, expected, lines_of, redrawn, told

from kimi_proxy.features.pruning.engine import outline
from kimi_proxy.features.pruning.frames import framing

PYTHON = r'''
H|#!/usr/bin/env python3
H|# -*- coding: utf-8 -*-
H|"""Reads what the meter says.
 |
~|import nothing from here: this is prose.
 |"""
 |
I|from __future__ import annotations
 |
I|import os
I|from collections.abc import (
I|    Mapping,
I|    Sequence,
I|)
 |
 |LIMIT = 10  # class of its own
 |
+|@decorated(
+|    by="someone",
+|)
+|@twice
S|class Meter(Base):
 |    """A meter."""
 |
 |    unit = "kWh"
 |
+|    @property
S|    def value(self) -> float:
 |        # def not_a_function(): pass
 |        return self._value
 |
S|    async def read(
+|        self,
+|        *names: str,
+|        default: float = 0.0,
+|    ) -> Mapping[str, float]:
 |        text = "import this"
S|        def inner(x):
 |            return x
 |        return {name: inner(default) for name in names}
 |
 |    class_of = None
 |
S|def one(x): return x
 |
 |if TYPE_CHECKING:
I|    import typing
'''

TYPESCRIPT = r"""
H|// Carries parcels.
I|import type { Parcel } from './parcel';
I|import {
I|  Injectable,
I|  Inject,
I|} from '@framework/core';
I|export * from './types';
 |
S|export interface Sender {
 |  name: string;
 |  send(parcel: Parcel): Promise<void>;
 |}
 |
S|export type Weight = number | string;
 |
S|export enum State {
 |  Waiting,
 |  Sent,
 |}
 |
+|@Injectable({
+|  scope: 'request',
+|})
S|export class Carrier implements Sender {
~|  private readonly name: string = 'class Carrier {';
 |
 |  // function commented() {
+|  @Post('send')
S|  async send(
+|    parcel: Parcel,
+|    speed?: number,
+|  ): Promise<void> {
 |    await this.queue.push(parcel);
 |  }
 |
S|  private weigh = (parcel: Parcel): Weight => {
 |    return parcel.weight;
 |  };
 |}
 |
S|export const carry = async (parcel: Parcel): Promise<void> => {
S|  function nested() {
 |    return parcel;
 |  }
 |  nested();
 |};
 |
S|export default function main(): void {
 |}
"""

JAVASCRIPT = r"""
 |'use strict'
 |
I|var http = require('http');
I|const { join, sep } = require('node:path')
 |
 |var app = exports = module.exports = {};
 |
S|app.listen = function listen(port) {
 |  var text = "function fake() {";
 |  return http.createServer(this).listen(port)
 |};
 |
S|function* counter(from, to) {
 |  while (from < to) yield from++;
 |}
 |
S|class Router extends Base {
S|  constructor() {
 |    super();
 |  }
S|  static of(path) {
 |    return new Router(path);
 |  }
 |}
 |
 |module.exports = {
S|  start: function () {
 |    app.listen(80);
 |  },
S|  stop() {
 |    app.close();
 |  },
 |};
"""

GO = r"""
H|// Package ring holds things in a circle.
I|package ring
 |
I|import (
I|	"errors"
I|	"fmt"
I|)
 |
 |var ErrEmpty = errors.New("func is empty")
 |
 |// Ring is a circle.
S|type Ring struct {
 |	items []int
 |}
 |
S|type Reader interface {
 |	Read() (int, error)
 |}
 |
 |// Push adds an item.
S|func (r *Ring) Push(
+|	item int,
+|) error {
 |	go func() {
 |		fmt.Println(item)
 |	}()
 |	return nil
 |}
 |
S|func New[T any](size int) *Ring {
 |	return &Ring{}
 |}
"""

RUST = r"""
H|//! Counts words.
I|use std::collections::HashMap;
I|use crate::{
I|    text::Words,
I|    Result,
I|};
S|mod tests_only;
 |
 |/// A counter.
+|#[derive(Debug, Clone)]
+|#[non_exhaustive]
S|pub struct Counter<'a> {
 |    words: HashMap<&'a str, usize>,
 |}
 |
S|impl<'a> Counter<'a> {
 |    /// struct in a comment
+|    #[inline]
S|    pub(crate) fn count(
+|        &mut self,
+|        word: &'a str,
+|    ) -> usize {
 |        let text = "fn fake() {}";
 |        self.words.len() + text.len()
 |    }
 |}
 |
S|pub trait Count {
S|    fn total(&self) -> usize;
 |}
 |
S|pub async fn run() -> Result<()> {
 |    Ok(())
 |}
 |
S|macro_rules! words {
 |    ($($w:expr),*) => { vec![$($w),*] };
 |}
"""

JAVA = r"""
H|/*
H| * Copyright of nobody.
H| * All rights given away.
 | * More of the licence.
 | */
I|package org.example.meter;
 |
I|import java.util.List;
I|import static java.util.Objects.requireNonNull;
 |
 |/** A meter. */
+|@Deprecated
+|@SuppressWarnings({"unused", "raw"})
S|public final class Meter<T extends Number>
+|    implements Readable {
S|  private static final String NAME = "public class Fake {";
 |
 |  // public void commented() {}
+|  @Override
S|  public <R> List<R> read(
+|      T first,
+|      T second) throws IOException {
 |    return List.of();
 |  }
 |
S|  Meter(int x) {
 |    this.x = x;
 |  }
 |
S|  enum State {
 |    ON, OFF
 |  }
 |
S|  interface Listener {
S|    void changed(State state);
 |  }
 |}
"""

C = r"""
H|/* Ring buffer. */
I|#include <stdio.h>
I|#include "ring.h"
 |
 |#define SIZE 16
 |
 |#ifdef DEBUG
I|#include <assert.h>
 |#endif
 |
S|typedef struct ring {
 |  int items[SIZE];
 |} ring_t;
 |
S|enum state { ON, OFF };
 |
 |static const char *text = "int fake(void) {";
 |
S|static int
+|ring_push(ring_t *ring,
+|          int item)
+|{
 |  /* int commented(void) { */
 |  if (ring == NULL) {
 |    return -1;
 |  }
 |  return item;
 |}
 |
S|int main(void) {
 |  return ring_push(NULL, 1);
 |}
"""

CPP = r"""
H|// Shapes.
 |#pragma once
I|#include <vector>
I|#include "base.hpp"
 |
I|using std::vector;
 |
S|namespace shapes::flat {
 |
+|template <typename T,
+|          typename U = int>
S|class Polygon : public Shape {
 | public:
S|  explicit Polygon(vector<T> points) : points_(points) {}
S|  auto area() const -> double override {
 |    return 0.0;
 |  }
 | private:
 |  vector<T> points_;
 |};
 |
+|template <typename T>
S|auto scaled(const Polygon<T>& p,
+|            double factor) -> Polygon<T> {
 |  const char* text = "class Fake {";
 |  return p;
 |}
 |
S|enum class Colour { red, green };
 |
~|template <typename T> struct Trait;
 |
 |}  // namespace shapes::flat
"""

CSHARP = r"""
I|using System;
I|using System.Collections.Generic;
 |
S|namespace Example.Meters
+|{
 |    /// <summary>A meter.</summary>
+|    [Serializable]
S|    public sealed class Meter : IMeter
+|    {
S|        private readonly int _value = 1;
 |
S|        public int Value { get; set; }
 |
+|        [Obsolete("public class Fake")]
S|        public Meter(int value)
+|        {
 |            _value = value;
 |        }
 |
S|        public async Task<int> ReadAsync(
+|            string name,
+|            CancellationToken token)
+|        {
 |            await Task.Yield();
S|            int Local(int x) => x + 1;
 |            return Local(_value);
 |        }
 |    }
 |
S|    public interface IMeter
+|    {
S|        int Value { get; }
 |    }
 |}
"""

RUBY = r"""
H|# frozen_string_literal: true
 |
I|require 'json'
I|require_relative 'meter/version'
 |
 |# Everything about meters.
S|module Meter
S|  class Reader < Base
I|    include Comparable
 |    attr_reader :value
 |
 |    # def commented; end
S|    def initialize(value,
+|                   unit: 'kWh')
 |      @text = "class Fake"
 |      @value = value
 |    end
 |
S|    def self.open(path)
 |      new(path).tap do |reader|
 |        reader.read
 |      end
 |    end
 |
S|    def empty? = @value.nil?
 |  end
 |end
"""

PHP = r"""
I|<?php
 |
 |declare(strict_types=1);
 |
S|namespace Example\Meters;
 |
I|use Example\Base\Meter;
I|use function Example\Base\{
I|    first,
I|    second,
I|};
 |
I|require_once __DIR__ . '/boot.php';
 |
 |/** Reads. */
+|#[Service]
S|final class Reader extends Meter implements Readable
+|{
I|    use Counts;
 |
S|    private int $value = 0;
 |
S|    public function read(
+|        string $name,
+|        int $default = 0,
+|    ): int {
 |        $text = 'class Fake {';
 |        return $this->value ?? $default;
 |    }
 |}
 |
S|function helper(array $items): array
+|{
 |    return array_map(fn ($x) => $x, $items);
 |}
"""

BASH = r"""
H|#!/usr/bin/env bash
H|# Starts the meter.
 |set -euo pipefail
 |
I|source ./lib.sh
I|. "$HOME/.profile"
 |
 |LIMIT=${1:-10}
 |
S|start() {
 |  local name="function fake() {"
 |  echo "$name"
 |}
 |
S|function stop {
 |  kill "$PID"
 |}
 |
 |if [ "$1" = stop ]; then
 |  stop
 |fi
"""

PICTURES = {
    "python": PYTHON, "typescript": TYPESCRIPT, "javascript": JAVASCRIPT, "go": GO, "rust": RUST, "java": JAVA,
    "c": C, "cpp": CPP, "csharp": CSHARP, "ruby": RUBY, "php": PHP, "bash": BASH,
}  # fmt: skip


@pytest.mark.parametrize("language", PICTURES)
def test_imports_signatures_and_the_file_header_stay_in(language: str) -> None:
    assert redrawn(PICTURES[language], "code") == expected(PICTURES[language])


@pytest.mark.parametrize("language", PICTURES)
def test_the_language_is_guessed_from_the_text_alone(language: str) -> None:
    assert outline(lines_of(PICTURES[language]), "code").language == language


@pytest.mark.parametrize("language", PICTURES)
def test_carriage_returns_change_nothing_in(language: str) -> None:
    lines = lines_of(PICTURES[language])
    unix, windows = outline(lines, "code"), outline([line + "\r" for line in lines], "code")
    assert (windows.language, windows.protected) == (unix.language, unix.protected)
    assert [(b.kind, b.start, b.end) for b in windows.blocks] == [(b.kind, b.start, b.end) for b in unix.blocks]


def test_definitions_become_blocks_that_hold_their_decorators_and_nest() -> None:
    assert told(outline(lines_of(PYTHON), "code")) == [
        ("class", "Meter", 17, 42),
        ("method", "value", 26, 30),
        ("method", "read", 31, 40),
        ("function", "inner", 37, 39),
        ("function", "one", 43, 44),
    ]


def test_the_body_of_a_definition_begins_after_its_whole_signature() -> None:
    found = outline(lines_of(PYTHON), "code")
    assert (block(found, "Meter").body, block(found, "value").body, block(found, "read").body) == (22, 28, 36)
    assert block(found, "one").body == block(found, "one").end


def test_a_comment_right_above_a_definition_belongs_to_its_block() -> None:
    found = outline(lines_of(GO), "code")
    push = block(found, "Push")
    assert (push.start, push.end) == (19, 28)
    assert [b.kind for b in found.blocks if b.start == push.start and b.depth > push.depth] == ["comment"]


def test_names_are_read_in_every_language() -> None:
    names = {language: {b.name for b in outline(lines_of(p), "code").blocks} for language, p in PICTURES.items()}
    assert names["typescript"] >= {"Sender", "Weight", "State", "Carrier", "send", "weigh", "carry", "nested", "main"}
    assert names["javascript"] >= {"app.listen", "counter", "Router", "constructor", "of", "start", "stop"}
    assert names["go"] >= {"Ring", "Reader", "Push", "New"}
    assert names["rust"] >= {"Counter", "count", "Count", "total", "run", "words"}
    assert names["java"] >= {"Meter", "read", "State", "Listener", "changed"}
    assert names["c"] >= {"ring_t", "state", "ring_push", "main"}
    assert names["cpp"] >= {"shapes::flat", "Polygon", "area", "scaled", "Colour"}
    assert names["csharp"] >= {"Example.Meters", "Meter", "Value", "ReadAsync", "Local", "IMeter"}
    assert names["ruby"] >= {"Meter", "Reader", "initialize", "open", "empty?"}
    assert names["php"] >= {"Reader", "read", "helper"}
    assert names["bash"] >= {"start", "stop"}


def test_statements_between_definitions_make_blocks_of_their_own() -> None:
    found = outline(lines_of(BASH), "code")
    assert [(b.start, b.end) for b in found.blocks if b.kind == "statement"] == [(2, 3), (7, 8), (18, 21)]


def test_a_long_function_is_cut_into_its_statements() -> None:
    body = [line for i in range(20) for line in ("", f"    if x == {i}:", "        a()", "        b()")]
    found = outline(["def long(x):", *body], "code")
    inner = [b for b in found.blocks if b.kind == "statement"]
    assert [(b.start, b.end, b.depth) for b in inner] == [(i * 4 + 2, i * 4 + 5, 1) for i in range(20)]


def test_a_short_function_is_one_block() -> None:
    found = outline(["def short(x):", "    a()", "", "    b()"], "code")
    assert [b.kind for b in found.blocks] == ["function"]


def test_tests_nested_in_calls_nest_as_blocks() -> None:
    case = ["  it('works', () => {", *["    expect(1).toBe(1);"] * 14, "  });", ""]
    lines = ["describe('Meter', () => {", "  const meter = require('./meter');", "", *case * 5, "});"]
    found = outline(lines, "code")
    outer, *inner = [b for b in found.blocks if b.kind == "closure"]
    assert (outer.start, outer.end, outer.depth) == (0, len(lines), 0)
    assert [b.end - b.start for b in inner] == [16] * 5


UNNAMED = {
    "javascript": ("app.get('/', function (req, res) {", "  res.one();\n  res.two();\n  res.three();\n});"),
    "typescript": ("const f: string = make(async (x: number): Promise<void> => {", "  a(x);\n  b(x);\n  c(x);\n});"),
    "go": ("\tt.Run(name, func(t *testing.T) {", "\t\ta()\n\t\tb()\n\t\tc()\n\t})"),
    "rust": ("    let v = xs.iter().map(|x| {", "        a(x);\n        b(x);\n        c(x)\n    });"),
    "java": ("    MULTIPLY {", "      int of(int a) {\n        return a;\n      }\n    },"),
    "ruby": ("  it 'reads the meter' do", "    expect(a)\n    expect(b)\n    expect(c)\n  end"),
    "cpp": (
        "    std::sort(v.begin(), v.end(), [&](int a, int b) {",
        "        x();\n        y();\n        return a < b;\n    });",
    ),
    "csharp": (
        "        app.Run(async context => {",
        "            A();\n            B();\n            C();\n        });",
    ),
    "php": ("$app->get('/', function ($request) {", "    one();\n    two();\n    three();\n});"),
}
AROUND = {
    "javascript": ("'use strict';\nconst app = require('express')();\n", "\nmodule.exports = app;\n"),
    "typescript": ("import { make } from './make';\ninterface A { x: number; }\n", "\n"),
    "go": ('package meter\n\nimport "testing"\n\nfunc TestRead(t *testing.T) {\n', "\n}\n"),
    "rust": ("use std::fmt;\n\nfn read(xs: &mut Vec<u8>) {\n", "\n}\n"),
    "java": ("import java.util.List;\n\npublic enum Operation {\n", "\n    ADD;\n}\n"),
    "ruby": ("require 'meter'\n\ndescribe Meter do\n", "\nend\n"),
    "cpp": ("#include <vector>\n\nvoid sorted(std::vector<int> v) {\n", "\n}\n"),
    "csharp": ("using System;\n\npublic class Startup\n{\n    public void Configure()\n    {\n", "\n    }\n}\n"),
    "php": ("<?php\nuse Slim\\App;\n$app = new App();\n", "\n$app->run();\n"),
}


@pytest.mark.parametrize("language", UNNAMED)
def test_a_function_or_class_without_a_name_is_a_block_headed_by_its_first_row(language: str) -> None:
    header, body = UNNAMED[language]
    before, after = AROUND[language]
    lines = f"{before}{header}\n{body}{after}".split("\n")
    found = outline(lines, "code")
    at = lines.index(header)

    assert found.language == language
    assert [(b.start, b.body) for b in found.blocks if b.kind == "closure" and b.start == at] == [(at, at + 1)]
    assert (at,) in [frame.headers for frame in framing(lines, found).frames]


def test_a_long_table_of_data_is_cut_in_pieces() -> None:
    found = outline(["import this", "", "TABLE = {", *[f"    'key{i}': {i}," for i in range(300)], "}"], "code")
    assert len([b for b in found.blocks if b.depth == 1]) == 10


def test_an_example_in_a_docstring_only_looks_like_a_definition() -> None:
    picture = '''
S|def route(path):
 |    """Register a view.
 |
 |        @app.route("/")
~|        def index():
 |            return "hello"
 |    """
 |    return path
'''
    assert redrawn(picture, "code") == expected(picture)


def test_where_a_parse_fails_line_rules_mark_what_they_know() -> None:
    lines = ["import os", "", "def good():", "    return 1", "", "def broken(:", "    return (", "", "class After:"]
    assert drawn(lines, "code").split("\n")[5][0] == "S"


KOTLIN = r"""
I|import kotlinx.coroutines.launch
 |
S|data class Meter(val value: Int)
 |
S|class Reader {
S|    fun read(name: String): Int {
 |        return name.length
 |    }
 |
S|    suspend fun wait() {
 |    }
 |}
"""


def test_a_language_without_a_grammar_is_read_by_line_rules() -> None:
    assert redrawn(KOTLIN, "code") == expected(KOTLIN)


def test_line_rules_find_blocks_by_indentation_and_closing_brackets() -> None:
    assert told(outline(lines_of(KOTLIN), "code"))[1:] == [
        ("class", "Reader", 4, 12),
        ("function", "read", 5, 8),
        ("function", "wait", 9, 11),
    ]


def test_a_text_too_large_to_parse_is_read_by_line_rules() -> None:
    lines = ["import os", *["def f(x):", "    return '" + "x" * 80 + "'", ""] * 6000]
    found = outline(lines, "code")
    assert found.language == "python"
    assert found.protected[:5] == ("import", "signature", "", "", "signature")
    assert sum(b.kind == "function" for b in found.blocks) == 6000


def test_lone_surrogates_and_odd_line_ends_do_not_shift_rows() -> None:
    lines = ["import os", "x = '\ud800'", "y = '\u2028\x0c'  # \x85", "def f():", "    return x\r"]
    assert drawn(lines, "code") == "\n".join(f"{sign}|{line}" for sign, line in zip("I  S ", lines, strict=True))
