#!/usr/bin/env python3
"""What `weir COMMAND --help` lists is what the manual page lists for the command, and docs/commands/COMMAND.md speaks of.

Needs no model.
"""
import os
import re
import unittest

import harness as h

HELP_ROW = re.compile(r"^  (?:-(\w), |    )--([a-z-]+)", re.MULTILINE)
MAN_ROW = re.compile(r"^\.It Fl (?:(\w) , Fl )?-([a-z-]+)", re.MULTILINE)
MENTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)")
OTHER_PROGRAMS = ("systemd-run", "make_models.py")  # whose options the pages name too


def read(*place):
    with open(os.path.join(h.ROOT, *place), encoding="utf-8") as file:
        return file.read()


def help_options(command):
    """(options of its own, options of every command), each as a set of (letter or "", name)."""
    text = h.run([h.WEIR, command, "--help"]).out
    own, common = text.split("common options:")
    return set(HELP_ROW.findall(own)), set(HELP_ROW.findall(common))


def man_options():
    """{"run": its options, "every": those of every command}."""
    options = {}
    for section in read("man", "weir.1").split(".Ss Of ")[1:]:
        heading, body = section.split("\n", 1)
        for word in re.findall(r"[a-z]+", heading.replace(" and ", ",").replace("every command", "every")):
            options.setdefault(word, set()).update(MAN_ROW.findall(body))
    return options


class Options(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not h.WEIR:
            raise unittest.SkipTest("the program is not built")
        listing = h.run([h.WEIR, "--help"]).out.split("commands:\n")[1].split("\n\n")[0]
        cls.commands = [line.split()[0] for line in listing.splitlines()]
        cls.options = {command: help_options(command) for command in cls.commands}

    def test_the_manual_page_lists_every_option_and_no_other(self):
        listed = man_options()
        for command, (own, common) in self.options.items():
            with self.subTest(command):
                self.assertEqual(listed.get(command, set()), own)
                self.assertEqual(listed["every"], common)

    def test_a_page_of_its_own_speaks_of_every_option(self):
        for command, (own, _) in self.options.items():
            with self.subTest(command):
                mentioned = set(MENTION.findall(read("docs", "commands", f"{command}.md")))
                self.assertEqual({name for _, name in own} - mentioned, set())

    def test_the_pages_name_no_option_that_is_not_there(self):
        names = {name for options in man_options().values() for _, name in options}
        for page in sorted(os.listdir(os.path.join(h.ROOT, "docs", "commands"))):
            for line in read("docs", "commands", page).splitlines():
                if not any(program in line for program in OTHER_PROGRAMS):
                    self.assertEqual(set(MENTION.findall(line)) - names, set(), f"{page}: {line}")


if __name__ == "__main__":
    unittest.main()
