#!/usr/bin/env python3
# SPDX-License-Identifier: LGPL-2.1-or-later
"""Verbs and options of pmemlogctl, the page, and the shell's completion say the same."""
import os
import re
import subprocess
import unittest

from base import outer

PAGE = os.path.join(outer.TOP, "man", "pmemlogctl.1")
COMPLETION = os.path.join(outer.TOP, "etc", "bash-completion", "pmemlogctl")


def ask(*words):
    return subprocess.run([outer.CTL, *words], capture_output=True, text=True, timeout=60,
                          check=True).stdout


def verbs():
    """Name of each verb: the words in front of its arguments."""
    found = re.findall(r"^  ((?:[a-z]+ ?)+)(?= |$).*\n      \S", ask("--help"), re.M)
    return [name.strip() for name in found]


def options(verb):
    text = ask(*verb.split(), "--help")
    return set(re.findall(r"--[a-z][a-z-]*", text.split("\n\n")[0].split("] " + verb)[1]))


def complete(*words):
    """What the completion offers for the last word."""
    script = ('source "$1"; shift; pmemlogctl() { return 1; }; COMP_WORDS=(pmemlogctl "$@"); '
              'COMP_CWORD=$(($# )); _pmemlogctl; printf "%s\\n" "${COMPREPLY[@]}"')
    r = subprocess.run(["bash", "-c", script, "bash", COMPLETION, *words], capture_output=True,
                       text=True, timeout=60, check=True)
    return set(r.stdout.split())


class Pages(unittest.TestCase):
    def page(self):
        """Synopsis and description of each verb, roff taken away: {verb: options}."""
        with open(PAGE) as f:
            text = f.read()
        synopsis = text.split(".Sh SYNOPSIS")[1].split(".Sh DESCRIPTION")[0]
        out = {}
        for part in synopsis.split("\n.Nm\n")[1:]:
            verb = re.search(r"^\.Cm (.*)$", part, re.M).group(1)
            after = part.split(".Cm " + verb, 1)[1]
            out[verb] = {"--" + o for o in re.findall(r"Fl Fl ([a-z][a-z-]*)", after)}
        return out, text

    def test_verbs(self):
        self.assertGreater(len(verbs()), 8)
        self.assertEqual(set(verbs()), set(self.page()[0]))
        for verb in verbs():
            self.assertIn("\n.It Cm %s\n" % verb, self.page()[1], "%s is not described" % verb)

    def test_options(self):
        page, _ = self.page()
        for verb in verbs():
            self.assertEqual(options(verb), page[verb], verb)

    def test_completion(self):
        first = complete("")
        for verb in verbs():
            words = verb.split()
            self.assertIn(words[0], first)
            if len(words) > 1:
                self.assertIn(words[1], complete(words[0], ""))
            offered = {w.rstrip("=") for w in complete(*words, "") if w.startswith("--")}
            self.assertEqual(offered, options(verb), verb)


if __name__ == "__main__":
    unittest.main()
