"""What other readers of mail show: Python's email, in both of its ways to read headers, and Dovecot.

Usage: others.py FOLDER DOVECOT_CONF    FOLDER/new holds messages named 1.M1.h, 2.M2.h and so on. One line of JSON a leaf.
"""

import base64
import email
import email.policy
import json
import os
import quopri
import subprocess
import sys


def tell(number, reader, name, content):
    print(json.dumps({"message": number, "reader": reader, "name": name or "", "content": content.decode("latin-1")}))


def python(number, octets):
    for reader, policy in [("email", email.policy.compat32), ("email (default policy)", email.policy.default)]:
        try:
            message = email.message_from_bytes(octets, policy=policy)
            parts = [part for part in message.walk() if not part.is_multipart()]
        except Exception:
            continue
        for part in parts:
            try:
                name, content = part.get_filename(), part.get_payload(decode=True)
            except Exception:
                # It gives up on this part, and shows nothing of it.
                continue
            if content is not None:
                tell(number, reader, name, content)


def parsed(text):
    """A parenthesised list as IMAP writes it: strings, numbers and lists."""
    at, stack = 0, [[]]
    while at < len(text):
        letter = text[at]
        if letter == "(":
            stack.append([])
        elif letter == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif letter == '"':
            at, word = at + 1, ""
            while text[at] != '"':
                at += text[at] == "\\"
                word += text[at]
                at += 1
            stack[-1].append(word)
        elif letter == "{":
            end = text.index("}", at)
            length = int(text[at + 1 : end].rstrip("+"))
            start = text.index("\n", end) + 1
            stack[-1].append(text[start : start + length])
            at = start + length - 1
        elif not letter.isspace():
            start = at
            while at + 1 < len(text) and text[at + 1] not in " ()":
                at += 1
            stack[-1].append(text[start : at + 1])
        at += 1
    return stack[0]


def value(pairs, wanted):
    if isinstance(pairs, list):
        for name, text in zip(pairs[::2], pairs[1::2]):
            if isinstance(name, str) and name.lower() == wanted:
                return text
    return ""


def leaves(structure, section):
    """The section, name and encoding of each leaf."""
    if structure and isinstance(structure[0], list):
        for place, part in enumerate([part for part in structure if isinstance(part, list)], 1):
            # Behind the parts come the parameters of the multipart, which are no parts.
            if isinstance(structure[place - 1], list):
                yield from leaves(part, section + [place])
        return
    if len(structure) < 3:
        return
    kind = "/".join(word.lower() for word in structure[:2] if isinstance(word, str))
    if kind == "message/rfc822" and len(structure) > 8 and isinstance(structure[8], list):
        inner = structure[8]
        # The body of a message that is itself a message has the section 1.
        section = section or [1]
        if inner and isinstance(inner[0], list):
            yield from leaves(inner, section)
        else:
            yield from leaves(inner, section + [1])
        return
    disposition = [part for part in structure[7:] if isinstance(part, list) and len(part) == 2 and isinstance(part[0], str)]
    names = [value(part[1], "filename") for part in disposition] + [value(structure[2], "name")]
    encoding = structure[5].lower() if len(structure) > 5 and isinstance(structure[5], str) else ""
    yield ".".join(map(str, section or [1])), next((name for name in names if name), ""), encoding


def decoded(content, encoding):
    """As a client of Dovecot decodes it; none if that cannot be."""
    try:
        if encoding == "base64":
            return base64.b64decode(content)
        return quopri.decodestring(content) if encoding == "quoted-printable" else content
    except ValueError:
        return None


def dovecot(folder, configuration):
    def fetch(fields):
        command = ["doveadm", "-c", configuration, "-o", "mail_location=maildir:" + folder, "-f", "json", "fetch", fields, "all"]
        environment = {**os.environ, "HOME": folder, "USER": "nobody", "LANG": "C.UTF-8"}
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
        return json.loads(output.decode("utf-8", "replace"))

    wanted, found = set(), {}
    for message in fetch("uid imap.bodystructure"):
        structure = parsed(message["imap.bodystructure"])
        found[message["uid"]] = list(leaves(structure, []))
        wanted.update(section for section, _, _ in found[message["uid"]])
    if not found:
        sys.exit("Dovecot shows no message at all")
    # One field has what the next one says, so they are asked for in pieces.
    wanted = sorted(wanted)
    for begin in range(0, len(wanted), 40):
        sections = wanted[begin : begin + 40]
        for message in fetch("uid " + " ".join("body." + section for section in sections)):
            for section, name, encoding in found[message["uid"]]:
                # What doveadm cannot write as UTF-8, it writes as U+FFFD; here that is the octet that Dovecot has for a NUL.
                octets = message.get("body." + section, "").encode("utf-8", "replace").replace("\ufffd".encode(), b"\x80")
                content = decoded(octets, encoding)
                if section in sections and content is not None:
                    tell(int(message["uid"]), "Dovecot", name, content)


def main():
    folder, configuration = sys.argv[1:3]
    names = sorted(os.listdir(os.path.join(folder, "new")), key=lambda name: int(name.split(".")[0]))
    for name in names:
        with open(os.path.join(folder, "new", name), "rb") as file:
            python(int(name.split(".")[0]), file.read())
    dovecot(folder, configuration)


main()
