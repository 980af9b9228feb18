"""What dkimpy says of messages: reads a list of {"message", "records"} as JSON, writes a list of true and false."""

import json
import sys

import dkim


def verified(case):
    records = case["records"]

    def look_up(name, timeout=5):
        text = records.get(name.decode().rstrip("."))
        return text.encode() if text is not None else None

    try:
        return dkim.verify(case["message"].encode(), dnsfunc=look_up)
    except Exception:
        return False


json.dump([verified(case) for case in json.load(sys.stdin)], sys.stdout)
