#!/usr/bin/env python3
"""Checks that dependencies point one way: which folder's sources may include which other folders' headers.

Prints TAP, one line a folder, and names each `#include` that breaks the rule.
"""
import pathlib
import re
import sys

PUBLIC = "weir"  # include/weir/*.h, open to all
ROOMS = {
    "include/weir": [],
    "src/base": [],
    "src/os": ["base"],
    "src/io": ["base", "os"],
    "src/format": ["base", "os"],
    "src/pack": ["base", "os", "format"],
    "src/residency": ["base", "os", "io", "format"],
    "src/plan": ["base", "os", "io", "format", "residency"],
    "src/ggml": ["base", "os", "io", "format", "pack", "residency", "plan"],
    "src/engine": ["base", "os", "io", "format", "pack", "residency", "plan", "ggml"],
    "programs": ["base", "os", "engine"],
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)


def included_room(root, source, name):
    """The room that `name` lies in, as seen from `source`; None for one that is not ours (engine headers)."""
    for base in (source.parent, root / "include", root / "src"):
        path = (base / name).resolve()
        if path.is_file() and root in path.parents:
            parts = path.relative_to(root).parts
            return PUBLIC if parts[0] == "include" else parts[1] if parts[0] == "src" else parts[0]
    return None


def broken(root, room, allowed):
    own = PUBLIC if room == "include/weir" else room.split("/")[-1]
    for source in sorted((root / room).rglob("*.[ch]*")):
        for name in INCLUDE.findall(source.read_text(encoding="utf-8")):
            target = included_room(root, source, name)
            if target not in (None, PUBLIC, own, *allowed):
                yield f"{source.relative_to(root)} includes {name}: {room} must not know {target}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    failed = 0
    unknown = sorted(str(p.relative_to(root)) for p in (root / "src").iterdir() if p.is_dir() and f"src/{p.name}" not in ROOMS)
    print(f"1..{len(ROOMS) + 1}")
    for room, allowed in ROOMS.items():
        problems = list(broken(root, room, allowed))
        print(f"{'not ok' if problems else 'ok'} - {room} includes only what lies below it")
        for problem in problems:
            print(f"# {problem}")
        failed += bool(problems)
    print(f"{'not ok' if unknown else 'ok'} - every folder of src has its place in the order {' '.join(unknown)}")
    return 1 if failed or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
