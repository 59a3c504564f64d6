#!/usr/bin/env python3
"""Plants the faults of `faults.txt` one after the other and runs the test that must notice each.

    scripts/mutants/planted.py [--list] [PART...]    faults whose name or file contains one of PART; without PART all

Each entry of `faults.txt`:

    == what is broken
    file path/from/the/root
    test arguments of `cargo test`, up to the end of the line
    - lines of the file as they are: together they occur once
    + lines in their place

Ends with 1 where a fault goes unnoticed, or a test fails before anything is planted. CARGO_ARGS replaces the arguments that
come first (`--release --features full`). The file is put back whatever happens; it must be as git has it before.
"""
import os
import pathlib
import shlex
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def faults():
    found = []
    for number, line in enumerate((HERE / "faults.txt").read_text().splitlines(), 1):
        if line.startswith("== "):
            found.append({"name": line[3:], "old": [], "new": []})
        elif line.startswith("#") or not line.strip():
            continue
        elif line.startswith(("file ", "test ")):
            found[-1][line[:4]] = line[5:]
        elif line.startswith("-") or line.startswith("+"):
            found[-1]["old" if line[0] == "-" else "new"].append(line[1:])
        else:
            sys.exit(f"faults.txt:{number}: neither `== `, `file `, `test `, `-` nor `+`: {line}")
    return found


def test(fault):
    """Whether the test of a fault passes, and the end of what it said."""
    arguments = shlex.split(os.environ.get("CARGO_ARGS", "--release --features full")) + shlex.split(fault["test"])
    run = subprocess.run(["cargo", "test", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    passed = sum(int(line.split(" passed")[0].rsplit(" ", 1)[1]) for line in run.stdout.splitlines() if " passed; " in line)
    if run.returncode == 0 and passed == 0:
        sys.exit(f"{fault['name']}: no test is run by `{fault['test']}`")
    return run.returncode == 0, run.stdout


def compiles(output):
    return "error: could not compile" not in output


def main():
    parts = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    chosen = [f for f in faults() if not parts or any(part in f["name"] or part in f["file"] for part in parts)]
    if "--list" in sys.argv:
        for fault in chosen:
            print(f"{fault['file']}: {fault['name']}  [{fault['test']}]")
        return
    unnoticed = []
    healthy = set()
    for fault in chosen:
        path = ROOT / fault["file"]
        old, new = "\n".join(fault["old"]), "\n".join(fault["new"])
        whole = path.read_text()
        if whole.count(old) != 1:
            sys.exit(f"{fault['name']}: its lines occur {whole.count(old)} times in {fault['file']}")
        if fault["test"] not in healthy:
            passes, output = test(fault)
            if not passes:
                sys.exit(f"{output[-3000:]}\n{fault['test']}: fails with nothing planted")
            healthy.add(fault["test"])
        start = time.monotonic()
        try:
            path.write_text(whole.replace(old, new))
            passes, output = test(fault)
        finally:
            path.write_text(whole)
        if not compiles(output):
            sys.exit(f"{output[-3000:]}\n{fault['name']}: does not compile")
        print(f"{'UNNOTICED' if passes else 'noticed  '}  {time.monotonic() - start:6.1f} s  {fault['file']}: {fault['name']}", flush=True)
        if passes:
            unnoticed.append(fault)
    print(f"{len(chosen) - len(unnoticed)} of {len(chosen)} faults were noticed")
    sys.exit(bool(unnoticed))


if __name__ == "__main__":
    main()
