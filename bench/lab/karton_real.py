"""Karton services that look at files as the lab's own plugins do: one service for each look, in Python or with YARA."""

import hashlib
import math
import re
import sys
import time
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import yara
from karton.core import Config, Karton, Producer, Resource, Task

RULES = yara.compile(source='rule eicar { strings: $a = "X5O!P%@AP[4" condition: $a } rule shell { strings: $a = "/bin/sh" condition: $a }')


def identify(data):
    return data[:4], hashlib.sha256(data).hexdigest(), hashlib.md5(data).hexdigest()


def strings(data):
    found = re.findall(rb"[\x20-\x7e]{6,}", data)
    return [re.findall(rb"https?://[^\s]+", text) for text in found]


def entropy(data):
    return -sum(n / len(data) * math.log2(n / len(data)) for n in Counter(data).values())


def matches(data):
    return RULES.match(data=data)


def program(data):
    return data[:4] == b"\x7fELF" and data[16:64].hex()


def archive(data):
    try:
        return zipfile.ZipFile(BytesIO(data)).namelist()
    except Exception:
        return []


def document(data):
    return re.findall(rb"/(?:OpenAction|JavaScript|JS|Launch|AA)\b", data)


LOOKS = {f.__name__: f for f in (identify, strings, entropy, matches, program, archive, document)}


def service(name):
    look = LOOKS[name]

    class Look(Karton):
        identity = name
        filters = [{"type": "bench"}]

        def process(self, task: Task) -> None:
            look(task.get_resource("sample").content)

    return Look


if sys.argv[1] == "looks":
    print(" ".join(LOOKS))
elif sys.argv[1] == "work":
    service(sys.argv[2])(config=Config()).loop()
else:
    producer = Producer(config=Config(), identity="bench")
    files = sorted(Path(sys.argv[2]).iterdir())
    print(time.time())
    for file in files:
        producer.send_task(Task({"type": "bench"}, payload={"sample": Resource(file.name, file.read_bytes())}))
