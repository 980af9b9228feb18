#!/usr/bin/env python3
"""A plugin in Python: decodes long runs of base64, and hands what comes out back to the lab.

It is started with the job folder as its argument and working directory. Nothing but the standard library is needed.
"""

import base64
import json
import pathlib
import re
import sys

job = pathlib.Path(sys.argv[-1])
task = json.loads((job / "input/input.json").read_text())
sample = (job / "input" / task["file"]).read_bytes()
shortest = int(task.get("config", {}).get("shortest", 64))

artifacts = []
for run in re.findall(rb"[A-Za-z0-9+/]{%d,}={0,2}" % shortest, sample)[:50]:
    try:
        decoded = base64.b64decode(run + b"=" * (-len(run) % 4))
    except ValueError:
        continue
    # A child: a file in output/, and the name that it should have.
    name = f"decoded-{len(artifacts) + 1}"
    (job / "output" / name).write_bytes(decoded)
    artifacts.append({"dataType": "file", "file": name, "filename": f"{name}.bin"})

found = {"level": "info", "namespace": "example", "predicate": "base64", "value": len(artifacts)}
report = {"success": True, "full": {"runs": len(artifacts)}, "summary": {"taxonomies": [found]}, "artifacts": artifacts}
(job / "output/output.json").write_text(json.dumps(report))
