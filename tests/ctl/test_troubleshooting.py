#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""pmemlogd-troubleshooting(7) against the source: every state, row, reason, message id and finding, both ways; each
says what it means, the one command, and what a wrong choice costs."""
import glob
import os
import re
import unittest

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(path):
    with open(os.path.join(TOP, path)) as f:
        return f.read()


def body(text, function):
    """The source of one function, or of one table."""
    return re.search(r"\b%s\b[^;]*?\{\n(.*?)\n\}" % function, text, re.S).group(1)


def strings(text):
    return {s for s in re.findall(r'"([^"]*)"', text) if s}


def advices():
    """Ids of advice_add(list, SEVERITY, ID, ...): one string, or two of a condition."""
    out = set()
    for path in glob.glob(os.path.join(TOP, "client/ctl/*.c")):
        for call in re.findall(r"advice_add\([^;]*?ADVICE_\w+,\s*(.*?);", read(path), re.S):
            first, depth = "", 0
            for c in call:
                depth += {"(": 1, ")": -1}.get(c, 0)
                if c == "," and depth == 0:
                    break
                first += c
            out |= {s for s in re.findall(r'"([^"]*)"', re.sub(r'\([^()]*(\([^()]*\))*[^()]*\)', "", first))}
    return out


def source():
    """{section of the page: words that the source uses}"""
    status = read("daemon/domain/status.c")
    rows = set(re.findall(r'\[ROW_\w+\] = \{ "([a-z-]+)"', read("daemon/recover/judge.c")))
    doctor = set()
    for name in ("memory", "system"):
        doctor |= set(re.findall(r'^\t\{ "([a-z-]+)", \w+ \},', read("client/ctl/doctor_%s.c" % name), re.M))
    return {
        "DOMAINS": strings(body(status, "state_name")),
        "REASONS OF BYPASS": strings(body(status, "reason_name")) - {"unknown"},
        "ROWS OF RECOVERY": rows,
        "JOURNAL": set(re.findall(r'#define LOG_ID_\w+\s+"([0-9a-f]{32})"', read("daemon/log.h"))),
        "CHECK, ENABLE AND DISABLE": advices(),
        "DOCTOR": doctor,
    }


def page():
    """{section: {word: text}}"""
    text = read("man/pmemlogd-troubleshooting.7")
    out = {}
    for part in text.split("\n.Sh ")[1:]:
        title, _, rest = part.partition("\n")
        items = re.split(r"^\.It Sy ", rest, flags=re.M)[1:]
        out[title] = {i.partition("\n")[0]: i.partition("\n")[2] for i in items}
    return out


class Page(unittest.TestCase):
    def test_source_is_understood(self):
        for section, least in (("DOMAINS", 4), ("REASONS OF BYPASS", 6), ("ROWS OF RECOVERY", 12),
                               ("JOURNAL", 9), ("CHECK, ENABLE AND DISABLE", 25), ("DOCTOR", 16)):
            self.assertGreaterEqual(len(source()[section]), least, section)

    def test_both_ways(self):
        have = page()
        for section, words in source().items():
            self.assertEqual(set(have[section]), words, section)

    def test_files(self):
        """States of a file and what stands beside them are where people read them."""
        text = (read("daemon/domain/status.c") + read("client/ctl/status_text.c"))
        for word in page()["FILES"]:
            self.assertIn(word, text)
        for word in strings(re.search(r'"state", f->state.*', text).group(0)) - {"state"}:
            self.assertIn(word, page()["FILES"])

    def test_each_says_what_to_do(self):
        for section, items in page().items():
            for word, text in items.items():
                for part in ("Command:\n", "Wrong choice:\n"):
                    self.assertEqual(text.count(part), 1, "%s: %s" % (section, word))
                meaning, rest = text.split("Command:\n")
                command, wrong = rest.split("Wrong choice:\n")
                for part in (meaning, command.replace(".br", ""), wrong):
                    self.assertTrue(part.strip(), "%s: %s" % (section, word))

    def test_commands_exist(self):
        """Verbs and options that the page names are pmemlogctl's."""
        synopsis = read("man/pmemlogctl.1").split(".Sh DESCRIPTION")[0]
        verbs = {v for v in re.findall(r"^\.Cm (.*)$", synopsis, re.M)}
        for line in re.findall(r"pmemlogctl ([a-z].*)", read("man/pmemlogd-troubleshooting.7")):
            words = re.split(r"[ ,]+", line.rstrip(" .;,"))
            verb = " ".join(words[:2]) if words[0] == "pool" else words[0]
            self.assertIn(verb, verbs, line)
            for option in re.findall(r"--([a-z-]+)", line):
                self.assertIn("Fl Fl " + option, synopsis, line)


if __name__ == "__main__":
    unittest.main()
