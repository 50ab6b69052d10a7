"""Evaluates the output of one schemathesis pass: prints its summary, and fails if the pass failed or tested nothing.

usage: api-fuzz-summary.py PASS OUTPUT EXIT_CODE
"""

import re
import sys

# A pass that tested next to nothing (a document without paths, a daemon that refuses the key) proves nothing.
CASES_MIN = 200


def main() -> int:
    name, path, code = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    generated = re.search(r"(\d[\d,]*) generated", text)
    cases = int(generated.group(1).replace(",", "")) if generated else 0
    operations = re.search(r"Tested: (\d+)", text)
    tested = operations.group(1) if operations else "?"
    print(f"api-fuzz: pass {name}: {cases} cases, {tested} operations, exit code {code}", file=sys.stderr)
    if code != 0:
        sys.stderr.write(text)
        return 1
    if cases < CASES_MIN:
        sys.stderr.write(text)
        print(f"api-fuzz: pass {name} made {cases} cases, fewer than {CASES_MIN}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
