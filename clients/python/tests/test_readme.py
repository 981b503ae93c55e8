"""Runs the programs of the README against the server that WEIR_URL names."""

import os
import pathlib
import re
import types
import unittest


@unittest.skipUnless(os.environ.get("WEIR_URL"), "WEIR_URL names no server")
class TestReadme(unittest.TestCase):
    def test_programs(self):
        programs = re.findall(r"^```python\n(.*?)^```", (pathlib.Path(__file__).parents[1] / "README.md").read_text(), re.M | re.S)
        self.assertGreater(len(programs), 4)
        app = types.SimpleNamespace(add_middleware=lambda *_, **__: None, wsgi_app=None)
        names = {"app": app, "call_model": lambda: types.SimpleNamespace(tokens=3)}
        for program in programs:
            # A limit that no unit returns to during the test.
            exec(compile(program.replace('"10/s", "1000/day"', '"10/week", "1000/day"'), "README.md", "exec"), names)
        self.addCleanup(names["weir"].close)
        answers = [names["answer"]("ann") for _ in range(11)]
        self.assertEqual([status for status, _ in answers], [200] * 10 + [429])
        self.assertIn("Retry-After", answers[-1][1])


if __name__ == "__main__":
    unittest.main()
