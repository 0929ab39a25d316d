"""Java projects with failures in them: for javac, Maven and programs that log and throw."""

import random
import re
from pathlib import Path

from runs import Project, write
from subjects import Fault, subjects

TYPED = {
    'int k = "text"; return k + n;': "text is given where a number is expected",
    "return absentValue + n;": "a symbol cannot be found",
    "return n.upcase();": "a number is used as if it were an object",
    "return Math.max(n, n, n);": "a call has too many arguments",
    "Absent k = null; return n;": "a class cannot be found",
    "String s = new String(n, n, n, n, n, n); return n;": "no constructor takes such arguments",
    "return this.gone + n;": "a field does not exist",
    "boolean b = n; return b ? 1 : 2;": "a number is taken for a truth",
}
# The compiler looks for these only where all types are right.
FLOWING = {
    'if (n > 0) throw new Exception("x"); return n;': "an exception is neither caught nor declared",
    "int k; return k + n;": "a variable may not have been given a value",
    "if (n > 3) { return 1; }": "a path returns nothing",
    "return 1; n++;": "a statement cannot be reached",
    "final int k; k = 1; k = n; return k;": "a final variable is assigned to twice",
    "for (;;) { } return n;": "nothing comes after a loop without end",
    "try { return n; } catch (java.io.IOException e) { return 2; }": "an exception is caught that nothing throws",
}
CALM = (
    "return n + 1;",
    "java.util.List l = new java.util.ArrayList(); l.add(n); return l.size();",
    "return new Integer(n);",
)


def javac(folder: Path, rng: random.Random) -> Project:
    every = subjects(rng, rng.randint(30, 90))
    broken = every[: rng.randint(2, 7)]
    kinds = rng.choice((TYPED, FLOWING))
    codes = dict(zip(broken, rng.sample(sorted(kinds), len(broken)), strict=True))
    rng.shuffle(every)
    files = {
        f"src/{s.camel}.java": f"class {s.camel} {{\n    int {s.verb}(int n) {{\n        {body}\n    }}\n}}\n"
        for s in every
        for body in [codes.get(s) or rng.choice(CALM)]
    }
    write(folder, files)
    faults = [Fault(s, (f"{s.camel}.java", s.camel), kinds[codes[s]], f"{s.camel}.java") for s in broken]
    how = rng.choice(("-Xlint:all", "-Xlint:all -verbose", "-Xlint:deprecation"))
    quiet = [s.words for s in every if s not in codes]
    starts = re.compile(r"\S+\.java:\d+:|\d+ (?:error|warning)|\[|Note:")
    return Project(
        f"javac {how} -XDshould-stop.ifError=GENERATE -Xmaxerrs 500 -d out src/*.java",
        faults,
        starts,
        re.compile("error:"),
        quiet,
    )


POMS = {
    "<dependencies><dependency><groupId>g</groupId><artifactId>a</artifactId></dependency></dependencies>": (
        "a dependency has no version"
    ),
    "<parent><groupId>g</groupId><artifactId>nowhere</artifactId><version>1</version></parent>": (
        "the parent of a project cannot be found"
    ),
    "<build><plugins><plugin><groupId>g</groupId></plugin></plugins></build>": "a plugin has no name",
    "<packaging>zzz</packaging>": "the packaging is unknown",
    "<dependencies><dependency><groupId>g</groupId><artifactId>a</artifactId><version>1</version><scope>system</scope>"
    "</dependency></dependencies>": "a dependency of the system has no path",
    "<modules><module>absent</module></modules><packaging>jar</packaging>": "a jar is said to have modules",
}


def maven(folder: Path, rng: random.Random) -> Project:
    """Many modules, some with a project file that Maven refuses; it needs no plugin to find out."""
    every = subjects(rng, rng.randint(20, 60))
    broken = every[: rng.randint(2, 5)]
    codes = dict(zip(broken, rng.sample(sorted(POMS), len(broken)), strict=True))
    rng.shuffle(every)
    modules = "".join(f"<module>{s.snake}</module>" for s in every)
    head = "<modelVersion>4.0.0</modelVersion><groupId>app</groupId><version>1</version>"
    calm = (
        "<dependencies>"
        + 2 * ("<dependency><groupId>g</groupId><artifactId>a</artifactId><version>1</version></dependency>")
        + "</dependencies>"
    )
    poms = {
        f"{s.snake}/pom.xml": f"<project>{head}<artifactId>{s.snake}</artifactId>{codes.get(s, calm)}</project>"
        for s in every
    }
    root = f"<artifactId>all</artifactId><packaging>pom</packaging><modules>{modules}</modules>"
    write(folder, {**poms, "pom.xml": f"<project>{head}{root}</project>"})
    faults = [Fault(s, (s.snake, f"{s.snake}/pom.xml"), POMS[codes[s]], f"{s.snake}/pom.xml") for s in broken]
    quiet = [s.words for s in every if s not in codes]
    starts = re.compile(r"\[\w+\]\s+The project|\[\w+\] \S")
    return Project(
        f"mvn -o -B {rng.choice(('', '-X', '-e'))} validate", faults, starts, re.compile("ERROR|FATAL"), quiet
    )


THROWN = {
    "int[] a = new int[2]; a[{n}]++;": "an index is beyond the end of a list",
    "Object o = null; o.hashCode();": "null is used as if it were an object",
    'Integer.parseInt("x{n}");': "text cannot be read as a number",
    'new java.net.Socket("127.0.0.1", 9);': "the connection is refused",
    'new java.io.FileReader("/nowhere/{n}");': "a file does not exist",
    'Object o = "{n}"; Integer i = (Integer) o;': "something is cast to a kind that it is not",
    "java.util.List.of(1).add({n});": "a list that may not be changed is changed",
    "new java.util.ArrayList<Integer>().iterator().next();": "an iterator has nothing more to give",
}


def service(folder: Path, rng: random.Random) -> Project:
    """A program that goes on: it logs what it does with java.util.logging, and the exceptions that it meets."""
    every = subjects(rng, rng.randint(12, 30))
    broken = every[: rng.randint(2, 6)]
    codes = dict(zip(broken, rng.sample(sorted(THROWN), len(broken)), strict=True))
    rng.shuffle(every)
    methods = "".join(
        f"    static void {s.snake}() throws Exception {{ {codes.get(s, '').format(n=rng.randint(20, 90))} }}\n"
        for s in every
    )
    cases = "".join(f"                case {i}: {s.snake}(); break;\n" for i, s in enumerate(every))
    names = ", ".join(f'"{s.snake}"' for s in every)
    turns, seed = rng.randint(60, 300), rng.randint(1, 10**6)
    once = "{" + ", ".join(str(every.index(s)) for s in broken) + "}"
    calm = "{" + ", ".join(str(i) for i, s in enumerate(every) if s not in codes) + "}"
    write(
        folder,
        {
            "Service.java": f"""import java.util.logging.*;
public class Service {{
    static final Logger LOG = Logger.getLogger("app.service");
    static final String[] NAMES = {{ {names} }};
{methods}    static void call(int i) throws Exception {{
        switch (i) {{
{cases}        }}
    }}
    public static void main(String[] args) {{
        java.util.Random random = new java.util.Random({seed}L);
        int[] once = {once}, calm = {calm};
        for (int turn = 0; turn < {turns}; turn++) {{
            int i = calm[random.nextInt(calm.length)];
            for (int k = 0; k < once.length; k++) if (turn == (k * 37 + 11) % {turns}) i = once[k];
            LOG.info("request " + turn + " asks to " + NAMES[i] + " for user " + random.nextInt(5000));
            try {{
                call(i);
                if (random.nextInt(9) == 0) LOG.warning("slow answer: " + random.nextInt(900) + " ms, 0 errors");
            }} catch (Exception e) {{
                LOG.log(Level.SEVERE, NAMES[i] + " failed", e);
            }}
        }}
    }}
}}
"""
        },
    )
    faults = [Fault(s, (s.snake,), THROWN[codes[s]]) for s in broken]
    starts = re.compile(r"\[?\d{4}-\d\d-\d\d|\w{3} \d\d, \d{4}")
    style = rng.choice(("%1$tF %1$tT %4$s %3$s %5$s%6$s%n", "[%1$tFT%1$tT] %4$-7s %2$s - %5$s%6$s%n"))
    command = f"javac -nowarn Service.java && java -Djava.util.logging.SimpleFormatter.format='{style}' Service"
    quiet = [s.words for s in every if s not in codes]
    return Project(command, faults, starts, re.compile("SEVERE"), quiet)


TOOLS = {"javac": javac, "maven": maven, "java service": service}
