"""quickyaml parses YAML as PyYAML does."""

import random
import tempfile
import unittest
import unittest.mock

import quickyaml
import yaml

MANIFEST = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: "a-b"
  labels: {app: x, "n": 1}
data:
  part.conf: |
    # part
    name = x: y
      indented

    [log]
  folded: >-
    a b
    c

    d
  quoted: "a\\tb \\u00e9 \\
    c"
  single: 'it''s'
  url: http://a:80/b#c
  num: 0o17
  time: 12:30:45
  none: ~
  list:
  - a
  - - b
    - c
  -   d: 1
      e: [1, 2, {f: g}]
---
a: &x {b: 1}
c: *x
d: {<<: *x, e: 2}
"""


def said(load, text):
    try:
        return repr(load(text))
    except yaml.YAMLError as error:
        return str(error)


class QuickYaml(unittest.TestCase):
    def setUp(self) -> None:
        self.one, self.all = yaml.safe_load, yaml.safe_load_all
        quickyaml.install()
        self.addCleanup(setattr, yaml, "safe_load", self.one)
        self.addCleanup(setattr, yaml, "safe_load_all", self.all)

    def check(self, text: str) -> None:
        self.assertEqual(said(lambda text: list(yaml.safe_load_all(text)), text), said(lambda text: list(self.all(text)), text), repr(text))
        self.assertEqual(said(lambda text: yaml.safe_load(text), text), said(self.one, text), repr(text))

    def test_takes_what_differs_the_ordinary_way(self) -> None:
        for text in ("a: {b: 1\t}", "- |#c\n  d", "{a?b: 1}", "\ufeffa: 1", "a: !\n", "a: 1\rb: 2", "%YAML 1.2\n---\na", "a: b: c", "- [", ""):
            self.check(text)

    def test_knows_what_a_module_adds(self) -> None:
        class Loader(yaml.SafeLoader):
            pass

        for loader in (Loader, yaml.CSafeLoader):
            with self.subTest(loader), unittest.mock.patch.object(yaml, "SafeLoader", Loader if loader is Loader else yaml.SafeLoader):
                loader.add_constructor("tag:yaml.org,2002:int", lambda loader, node: "an int")
                self.check("a: 1")
        del yaml.CSafeLoader.yaml_constructors

    def test_reads_files(self) -> None:
        for text in ("a: [b, 1]\n", "a: b: c", "a: 1\t"):
            with tempfile.TemporaryFile("w+") as file:
                def read(load):
                    file.seek(0)
                    said_of = said(load, file)
                    return said_of, file.read()
                file.write(text)
                self.assertEqual(read(lambda file: yaml.safe_load(file)), read(self.one))

    def test_lives_through_what_is_deep(self) -> None:
        for text in ("[" * 100000, "- " * 50000, "-  " * 50000, "{a: " * 50000):
            with self.assertRaises((RecursionError, yaml.YAMLError)):
                yaml.safe_load(text)

    def test_is_the_same(self) -> None:
        self.check(MANIFEST)
        source = random.Random(1)
        for _ in range(200):
            text = MANIFEST
            for _ in range(source.randint(1, 3)):
                at = source.randrange(len(text))
                text = text[:at] + source.choice(["", *" \t\n:#-[]{},'\"|>&*!%@`?~\\.a1\r\x85\xa0\ufeffé"]) + text[at + source.randint(0, 1):]
            self.check(text)
