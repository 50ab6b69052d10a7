"""Writes the table of supported calls per version of E2B's clients into a document, or compares it with the existing table.

    table.py DOCUMENT TABLE RESULTS VERSION…

`UPDATE=1` writes the table. RESULTS has one file per version with the output of the scenarios. Two comments delimit the table.
"""

import os
import re
import sys

document, name, results, versions = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
BEGIN, END = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"

rows = {}
for version in versions:
    with open(os.path.join(results, version), encoding="utf-8") as lines:
        for line in lines:
            found = re.match(r"(ok|absent) (.*?)(?: \d+ ms)?$", line.strip())
            if found:
                rows.setdefault(found[2], {})[version] = {"ok": "yes", "absent": "–"}[found[1]]

names = {"py": "Python", "js": "npm"}
head = ["", *[f"{names[version[:2]]} {version[3:]}" for version in versions]]
table = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
for row, cells in rows.items():
    table.append("| " + " | ".join([row, *[cells.get(version, " ") for version in versions]]) + " |")
table = "\n".join(table)

with open(document, encoding="utf-8") as file:
    text = file.read()
before, rest = text.split(BEGIN)
there, after = rest.split(END)
if there.strip() == table:
    sys.exit(0)
if os.environ.get("UPDATE"):
    with open(document, "w", encoding="utf-8") as file:
        file.write(f"{before}{BEGIN}\n{table}\n{END}{after}")
    sys.exit(0)
print(f"the {name} in {document} does not match the test results; `UPDATE=1` updates it", file=sys.stderr)
print(table, file=sys.stderr)
sys.exit(1)
