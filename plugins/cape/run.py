#!/usr/bin/env python3
"""A bridge to CAPE (its REST API, apiv2): hands the sample over, waits for the report, and says it in the lab's words.

It is started with the job folder as its argument and working directory. Nothing but the standard library is needed. What CAPE says is believed as
far as any plugin is: its points and its signatures speak against a sample, and its silence does not make one clean.
"""

import http.client
import json
import pathlib
import socket
import sys
import time
import uuid

job = pathlib.Path(sys.argv[-1])
task = json.loads((job / "input/input.json").read_text())
config = task.get("config", {})
# Lists of a report are cut to these: CAPE's own report has the rest.
LISTED, TEXT = 400, 1000
ENDED_BADLY = ("failed_analysis", "failed_processing", "failed_reporting", "banned")


class Unreachable(Exception):
    """CAPE could not be asked, or did not answer as it should."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(config.get("socket", "/run/cape/api.sock"))


def ask(method, path, body=None, kind=None):
    """The JSON of an answer."""
    headers = {"Accept": "application/json"}
    if config.get("token"):
        headers["Authorization"] = "Token " + config["token"]
    if kind:
        headers["Content-Type"] = kind
    connection = UnixConnection("cape")
    try:
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"CAPE does not answer: {error}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise Unreachable(f"CAPE answers {answer.status} to {path}")
    try:
        said = json.loads(content)
    except ValueError:
        raise Unreachable(f"CAPE's answer to {path} is no JSON") from None
    if isinstance(said, dict) and said.get("error") is True:
        raise Unreachable(f"CAPE says: {text(said.get('error_value') or said.get('errors') or 'an error')}")
    return said


def submit():
    """Hands the sample over; the number of CAPE's task."""
    boundary = uuid.uuid4().hex
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in task.get("filename", "sample"))[-100:] or "sample"
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    sample = (job / "input" / task["file"]).read_bytes()
    body = head.encode() + sample + f"\r\n--{boundary}--\r\n".encode()
    said = ask("POST", "/apiv2/tasks/create/file/", body, f"multipart/form-data; boundary={boundary}")
    numbers = (said.get("data") or {}).get("task_ids") or []
    if not numbers:
        raise Unreachable("CAPE took the sample and gave it no number")
    return int(numbers[0])


def wait(number):
    """Until CAPE has written its report."""
    until = time.monotonic() + float(config.get("wait_s", 1500))
    pause = 0.5
    while time.monotonic() < until:
        status = ask("GET", f"/apiv2/tasks/status/{number}/").get("data")
        if status == "reported":
            return
        if status in ENDED_BADLY:
            raise Unreachable(f"CAPE could not analyse it: {status}")
        time.sleep(pause)
        pause = min(pause * 1.5, 15)
    raise Unreachable(f"CAPE has no report of task {number} after {config.get('wait_s', 1500)} s")


def text(value):
    return str(value)[:TEXT]


def part(report, *names):
    """A part of the report; an empty one where it is missing or something else than it should be."""
    for name in names:
        report = report.get(name) if isinstance(report, dict) else None
    return report


def rows(value):
    return [row for row in value if isinstance(row, dict)][:LISTED] if isinstance(value, list) else []


def processes(report):
    for row in rows(part(report, "behavior", "processes")):
        command = part(row, "environ", "CommandLine") or row.get("process_name", "")
        yield {
            "pid": number_of(row.get("process_id")),
            "parent": number_of(row.get("parent_id")),
            "path": text(row.get("module_path") or row.get("process_name", "")),
            "arguments": [text(command)],
        }


def number_of(value):
    return value if isinstance(value, int) and 0 <= value < 2**32 else 0


def network(report):
    for row in rows(part(report, "network", "domains")):
        yield {"pid": 0, "what": "dns", "to": text(row.get("domain", "")), "detail": text(row.get("ip", ""))}
    for row in rows(part(report, "network", "tcp")):
        yield {"pid": 0, "what": "connect", "to": f"{text(row.get('dst', ''))}:{row.get('dport', 0)}"}
    for row in rows(part(report, "network", "http")):
        detail = f"{text(row.get('method', 'GET'))} {text(row.get('path', '/'))}"
        yield {"pid": 0, "what": "http", "to": text(row.get("host", "")), "detail": detail, "host": text(row.get("host", ""))}


def files(report):
    for row in rows(report.get("dropped")):
        paths = row.get("guest_paths") or row.get("name") or []
        path = paths if isinstance(paths, str) else (paths or [""])[0]
        yield {"pid": 0, "path": text(path), "what": "written", "sha256": text(row.get("sha256", ""))}


def findings(report, number):
    def finding(level, predicate, value):
        return {"level": level, "namespace": "cape", "predicate": predicate, "value": text(value)}

    points = report.get("malscore")
    points = float(points) if isinstance(points, (int, float)) else 0.0
    families = [text(row.get("family", "")) for row in rows(report.get("detections"))]
    if isinstance(report.get("detections"), str):
        families = [text(report["detections"])]
    level = "info"
    if points >= float(config.get("suspicious", 4)):
        level = "suspicious"
    if points >= float(config.get("malicious", 7)) or any(families):
        level = "malicious"
    yield finding(level, "points", f"{points:g} of 10, task {number}")
    for family in filter(None, families[:8]):
        yield finding("malicious", "family", family)
    for row in rows(report.get("signatures"))[:100]:
        grave = number_of(row.get("severity")) >= 3 and level != "info"
        yield finding("suspicious" if grave else "info", text(row.get("name", "signature")), row.get("description", ""))


def artifacts(seen):
    kinds = {"dns": "domain", "connect": "ip"}
    found = {(kinds[row["what"]], row["to"].rsplit(":", 1)[0]) for row in seen if row["what"] in kinds and row["to"]}
    found |= {("url", f"http://{row['host']}{row['detail'].split(' ', 1)[1]}") for row in seen if row["what"] == "http" and row["host"]}
    return [{"dataType": kind, "data": data} for kind, data in sorted(found)[:200]]


def main():
    number = submit()
    wait(number)
    report = ask("GET", f"/apiv2/tasks/get/report/{number}/json/")
    if not isinstance(report, dict):
        raise Unreachable("CAPE's report is none")
    seen = list(network(report))
    full = {"machine": "CAPE", "task": number, "processes": list(processes(report)), "network": seen, "files": list(files(report))}
    return {"success": True, "full": full, "summary": {"taxonomies": list(findings(report, number))}, "artifacts": artifacts(seen)}


try:
    said = main()
except Unreachable as why:
    said = {"success": False, "errorMessage": text(why)}
(job / "output/output.json").write_text(json.dumps(said))
