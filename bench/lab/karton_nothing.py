"""A Karton service that does nothing, and a producer of work for it."""

import sys
import time

from karton.core import Config, Karton, Producer, Task


class Nothing(Karton):
    identity = "nothing"
    filters = [{"type": "bench"}]

    def process(self, task: Task) -> None:
        pass


if sys.argv[1] == "work":
    Nothing(config=Config()).loop()
else:
    producer = Producer(config=Config(), identity="bench")
    print(time.time())
    for number in range(int(sys.argv[2])):
        producer.send_task(Task({"type": "bench"}, payload={"number": number}))
