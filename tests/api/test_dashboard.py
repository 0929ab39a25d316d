"""The dashboard's files: how they are served, and what they may hold."""

import gzip
import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest
from tests.support.api.proxy_world import proxy
from tests.support.checkout import copy_to

from kimi_proxy.api import dashboard
from kimi_proxy.api.dashboard import FOLDER, TYPES

MAX_PAGE_BYTES = 125_000
FILES = sorted(file for file in FOLDER.rglob("*") if file.suffix in TYPES)
OURS = [file for file in FILES if file.parent.name != "vendor"]
NAMESPACE = re.compile(r"http://www\.w3\.org/\d{4}/(svg|xhtml|Math/MathML)")
IMPORT = re.compile(r"""(?:\bfrom|\bimport\(?)\s*["'](\.[^"']+)["']""")
LINKED = re.compile(r'(?:src|href)="/dashboard/([^"]+)"')


def name(file: Path) -> str:
    return file.relative_to(FOLDER).as_posix()


async def served(home: Path, path: str, **headers: str) -> httpx.Response:
    async with proxy(home, "") as p:
        return await p.http.get(path, headers=headers)


async def test_the_page_runs_its_own_files_alone(tmp_path: Path):
    page = await served(tmp_path, "/")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(each.split(" ", 1) for each in page.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["img-src"] == "'self' data:"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert page.headers.get_list("x-content-type-options") == ["nosniff"]
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_every_file_comes_with_its_type_and_all_its_bytes(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        for file in FILES:
            answer = await p.http.get(f"/dashboard/{name(file)}")
            assert answer.status_code == 200
            assert answer.headers["content-type"] == TYPES[file.suffix]
            is_page = name(file) == dashboard.PAGE
            assert answer.content == (dashboard.page_with_preloads(FOLDER) if is_page else file.read_bytes())


async def test_a_file_that_the_browser_has_is_not_sent_again(tmp_path: Path):
    async with proxy(tmp_path, "") as p:
        first = await p.http.get("/dashboard/app.js")
        again = await p.http.get("/dashboard/app.js", headers={"if-none-match": first.headers["etag"]})
        other = await p.http.get("/dashboard/app.js", headers={"if-none-match": 'W/"another"'})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert other.status_code == 200


@pytest.mark.parametrize(("accepts", "is_packed"), [("gzip, br", True), ("identity", False), ("gzip;q=0", False)])
async def test_files_are_packed_for_those_who_can_unpack_them(tmp_path: Path, accepts: str, is_packed: bool):
    async with proxy(tmp_path, "") as p:
        request = p.http.build_request("GET", "/dashboard/app.js", headers={"accept-encoding": accepts})
        answer = await p.http.send(request, stream=True)
        raw = b"".join([part async for part in answer.aiter_raw()])

    assert answer.headers["vary"] == "accept-encoding"
    assert (answer.headers.get("content-encoding") == "gzip") is is_packed
    assert (gzip.decompress(raw) if is_packed else raw) == (FOLDER / "app.js").read_bytes()


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.js",
        "views",
        "README.md",
        "%2e%2e/api/dashboard.py",
        "..%2f__init__.py",
        "views/..%2f..%2f__init__.py",
        "views%2f..%2fapp.js",
        "%2fetc%2fpasswd",
        "app.js%00",
        "\u202ejs.ppa",
        "a" * 5000 + ".js",
    ],
)
async def test_other_paths_lead_nowhere(tmp_path: Path, path: str):
    assert (await served(tmp_path, f"/dashboard/{path}")).status_code == 404


async def test_the_files_need_no_token_and_what_they_show_does(tmp_path: Path):
    async with proxy(tmp_path, "", KIMI_PROXY_TOKEN="a-token-that-is-long-enough") as p:
        statuses = {path: (await p.http.get(path)).status_code for path in ("/", "/dashboard/app.js", "/api/sessions")}

    assert statuses == {"/": 200, "/dashboard/app.js": 200, "/api/sessions": 401}


@pytest.mark.parametrize(
    ("path", "mode", "dest", "status"),
    [
        ("/", "navigate", "document", 200),
        ("/", "navigate", "iframe", 403),
        ("/", "no-cors", "script", 403),
        ("/", "cors", "empty", 403),
        ("/dashboard/app.js", "navigate", "document", 403),
        ("/api/sessions", "navigate", "document", 403),
    ],
)
async def test_a_link_leads_to_the_page_and_nothing_else_of_another_site_does(
    tmp_path: Path, path: str, mode: str, dest: str, status: int
):
    sent = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": dest}
    async with proxy(tmp_path, "") as p:
        answer = await p.http.get(path, headers=sent)

    assert answer.status_code == status


async def test_a_form_of_another_site_posts_nothing_to_the_page(tmp_path: Path):
    sent = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    async with proxy(tmp_path, "") as p:
        answer = await p.http.post("/", headers={**sent, "origin": "https://elsewhere.example"}, data={"a": "b"})

    assert answer.status_code == 403


def test_all_that_a_page_loads_is_light():
    names = [*dashboard.preloads(FOLDER), "early.js", "icon.svg", "vendor/uplot.mjs"]
    loaded = [dashboard.page_with_preloads(FOLDER), dashboard.join_styles(FOLDER)]
    loaded += [(FOLDER / name).read_bytes() for name in names]

    assert sum(len(gzip.compress(each, 9)) for each in loaded) <= MAX_PAGE_BYTES


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix != ".txt"], ids=name)
def test_no_file_names_another_host(file: Path):
    text = NAMESPACE.sub("", file.read_text("utf-8"))
    if file.parent.name == "vendor":
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)  # who wrote it, and under which licence

    assert re.findall(r"(?:https?:|wss?:|[\"'`(])//(?!127\.0\.0\.1\b)\w[^\s\"'`)]*", text) == []


@pytest.mark.parametrize("file", OURS, ids=name)
def test_text_stays_text(file: Path):
    text = file.read_text("utf-8")

    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function|srcdoc"
    assert re.findall(forbidden, text) == []
    if file.suffix == ".html":
        assert re.findall(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text) == []


def test_nothing_is_told_to_pointers_alone():
    """A `title` needs one; the strip of the map is a picture, of which the list below it tells the same in words."""
    told = {name(file) for file in OURS if re.search(r"<[a-z][^<]*?\stitle=", file.read_text("utf-8"))}

    assert told == {"views/map/strip.js"}


def test_every_import_and_every_link_leads_to_a_file():
    linked = set(LINKED.findall((FOLDER / "index.html").read_text("utf-8"))) - {dashboard.STYLE}
    leads = {(FOLDER / path) for path in linked}
    for file in OURS:
        if file.suffix == ".js":
            leads |= {(file.parent / path).resolve() for path in IMPORT.findall(file.read_text("utf-8"))}

    assert {str(path) for path in leads if not path.is_file()} == set()


async def test_the_page_lists_the_modules_of_its_first_view_before_they_are_found(tmp_path: Path):
    page = await served(tmp_path, "/")
    listed = re.findall(r'<link rel="modulepreload" href="/dashboard/([^"]+)">', page.text)

    assert listed == dashboard.preloads(FOLDER)
    assert len(listed) == len(set(listed))
    assert {"app.js", "views/live.js", "vendor/preact.mjs"} <= set(listed)
    assert not {"views/cuts.js", "vendor/uplot.mjs"} & set(listed)  # loaded when they are needed


def test_a_module_that_is_imported_joins_the_list(tmp_path: Path):
    shutil.copytree(FOLDER, tmp_path / "dashboard")
    (tmp_path / "dashboard" / "lib" / "new.js").write_text('export { t } from "./i18n.js";\n')
    entry = tmp_path / "dashboard" / "app.js"
    entry.write_text('import {\n  t,\n} from "./lib/new.js";\n' + entry.read_text("utf-8"))

    assert set(dashboard.preloads(tmp_path / "dashboard")) - set(dashboard.preloads(FOLDER)) == {"lib/new.js"}


async def test_all_styles_come_as_one_file(tmp_path: Path):
    style = await served(tmp_path, f"/dashboard/{dashboard.STYLE}")

    assert {sheet.stem for sheet in (FOLDER / "style").glob("*.css")} == set(dashboard.STYLES)
    assert all(sheet.read_text("utf-8") in style.text for sheet in FOLDER.rglob("*.css"))
    assert style.headers["content-type"] == TYPES[".css"]


def test_every_word_is_there_in_both_languages():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node reads the words: it is not installed")
    program = """
      const shape = (words) => Object.fromEntries(Object.entries(words).map(([key, text]) => [key,
        typeof text === "string" ? text : text.one + " " + text.other]));
      const files = process.argv.slice(1);
      const all = await Promise.all(files.map(async (file) => (await import(file)).default));
      console.log(JSON.stringify(all.map(({en, fr}) => [shape(en), shape(fr)])));
    """
    files = sorted((FOLDER / "words").glob("*.js"))
    # Without a package.json beside them, node would take the modules for scripts.
    command = [node, "--experimental-default-type=module", "--input-type=module", "-e", program, *map(str, files)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
    for file, (english, french) in zip(files, json.loads(run.stdout), strict=True):
        assert english.keys() == french.keys(), file.name
        for key in english:
            assert french[key].strip(), (file.name, key)
            holes = [set(re.findall(r"\{\w+\}", text)) for text in (english[key], french[key])]
            assert holes[0] == holes[1], (file.name, key)


def test_every_word_that_a_view_says_is_written_down():
    for file in OURS:
        text = file.read_text("utf-8")
        found = re.search(r'import words from "([^"]+)"', text)
        if found:
            words = (file.parent / found[1]).read_text("utf-8")
            said = set(re.findall(r'\bt\("(\w+)"', text))
            assert {key for key in said if not re.search(rf"\b{key}:", words)} == set(), name(file)


def test_each_vendored_file_has_its_licence_and_its_version_beside_it():
    vendor = FOLDER / "vendor"
    listed = (vendor / "README.md").read_text("utf-8")
    for file in [*vendor.glob("*.mjs"), *vendor.glob("*.css")]:
        library = file.stem.partition("-")[0]
        assert (vendor / f"{library}.LICENSE.txt").stat().st_size > 500
        assert re.search(rf"^\| `{file.name}` \| {library} \d+\.\d+\.\d+, ", listed, re.M)


def test_the_wheel_holds_every_file(tmp_path: Path):
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "dist"]
    subprocess.run(build, cwd=copy_to(tmp_path / "source"), check=True, capture_output=True, timeout=120)
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {each: packed.read(each) for each in packed.namelist() if each.startswith("kimi_proxy/dashboard/")}

    assert {f"kimi_proxy/dashboard/{name(file)}": file.read_bytes() for file in FILES}.items() <= held.items()
