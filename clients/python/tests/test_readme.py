"""Runs the programs of the README against the server that WEIR_URL names."""

import importlib.util
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
        names = {"__name__": "__main__", "call_model": lambda: types.SimpleNamespace(tokens=3)}
        for program in programs:
            needed = re.findall(r"^(?:from|import) (\w+)", program, re.M) + re.findall(r"^from weir\.(flask|fastapi|httpx|limits) ", program, re.M)
            if any(importlib.util.find_spec(module) is None for module in needed) and not os.environ.get("WEIR_FRAMEWORKS"):
                continue
            # A limit that no unit returns to during the test.
            program = program.replace('"10/s", "1000/day"', '"10/week", "1000/day"').replace("weir://127.0.0.1:6380", os.environ["WEIR_URL"])
            exec(compile(program, "README.md", "exec"), names)
        self.addCleanup(names["weir"].close)
        if "limiter" in names:
            self.addCleanup(names["limiter"].storage.weir.close)
            self.assertTrue(names["granted"])
        answers = [names["answer"]("ann") for _ in range(11)]
        self.assertEqual([status for status, _ in answers], [200] * 10 + [429])
        self.assertIn("Retry-After", answers[-1][1])


if __name__ == "__main__":
    unittest.main()
