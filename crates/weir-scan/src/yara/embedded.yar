/*
 * Rules of our own, in force with nothing else installed. A rule says in its meta field `severity` what a match means:
 * "infected", "forbidden" or "suspicious" (passes, and is worth an analysis).
 * Known from outside: filename, extension, kind (what the file is by content), in_archive, is_message (the raw message).
 */

rule EICAR_test_file
{
    meta:
        severity = "infected"
        description = "The standard test file, which is harmless and must be found"
    strings:
        $text = "X5O!P%@AP[4\\PZX54(P^)7CC)7}$EICAR-STANDARD-ANTIVIRUS-TEST-FILE!$H+H*"
    condition:
        $text in (0..256) or (is_message and $text)
}

rule GTUBE_unsolicited_bulk_test
{
    meta:
        severity = "suspicious"
        description = "The standard test string of spam filters"
    strings:
        $text = "XJS*C4JDBQADN1.NSBN3*2IDNEN*GTUBE-STANDARD-ANTI-UBE-TEST-EMAIL*C.34X"
    condition:
        not is_message and $text
}

rule Macro_dropper
{
    meta:
        severity = "infected"
        description = "A macro that runs by itself, fetches or writes a file, and starts it"
    strings:
        $auto1 = "AutoOpen" nocase
        $auto2 = "Auto_Open" nocase
        $auto3 = "Document_Open" nocase
        $auto4 = "Workbook_Open" nocase
        $auto5 = "AutoExec" nocase
        $auto6 = "AutoClose" nocase
        $auto7 = "Document_Close" nocase
        $get1 = "URLDownloadToFile" nocase
        $get2 = "MSXML2.XMLHTTP" nocase
        $get3 = "WinHttp.WinHttpRequest" nocase
        $get4 = "ADODB.Stream" nocase
        $get5 = "DownloadFile" nocase
        $get6 = "DownloadString" nocase
        $get7 = "SaveToFile" nocase
        $run1 = "Shell(" nocase
        $run2 = "Shell " nocase
        $run3 = "WScript.Shell" nocase
        $run4 = "ShellExecute" nocase
        $run5 = "Win32_Process" nocase
        $run6 = "powershell" nocase
        $run7 = "CreateProcess" nocase
    condition:
        extension == "macro" and any of ($auto*) and any of ($get*) and any of ($run*)
}

rule Macro_starts_a_program
{
    meta:
        severity = "suspicious"
        description = "A macro that runs by itself and starts something"
    strings:
        $auto = /\b(Auto_?(Open|Exec|Close)|Document_(Open|Close)|Workbook_(Open|Activate))\b/ nocase
        $run = /\b(Shell|CreateObject|ShellExecute|CallByName|MacScript)\b/ nocase
    condition:
        extension == "macro" and $auto and $run
}

rule Script_in_archive
{
    meta:
        severity = "forbidden"
        description = "A script of Windows in an archive, also under another name"
    strings:
        $wsh1 = "WScript.CreateObject" nocase
        $wsh2 = "WScript.Shell" nocase
        $wsh3 = "ActiveXObject(" nocase
        $wsh4 = "Scripting.FileSystemObject" nocase
        $act1 = ".Run(" nocase
        $act2 = ".Run " nocase
        $act3 = ".ShellExecute" nocase
        $act4 = "eval(" nocase
        $act5 = "Execute(" nocase
        $act6 = "ResponseBody" nocase
    condition:
        in_archive and filesize < 2MB and extension != "macro" and any of ($wsh*) and any of ($act*)
}

rule Hidden_PowerShell
{
    meta:
        severity = "forbidden"
        description = "A command line that starts PowerShell out of sight or with an encoded command"
    strings:
        $name = "powershell" nocase ascii wide
        $hid1 = /-w(indowstyle)?\s+(hidden|1)\b/ nocase ascii wide
        $enc1 = /-e(nc|ncodedcommand)?\s+[A-Za-z0-9+\/]{40}/ nocase ascii wide
        $get1 = "DownloadString" nocase ascii wide
        $get2 = "DownloadFile" nocase ascii wide
        $get3 = "FromBase64String" nocase ascii wide
        $get4 = "Invoke-Expression" nocase ascii wide
    condition:
        not is_message and filesize < 8MB and $name and ($enc1 or ($hid1 and any of ($get*)))
}

rule HTML_application
{
    meta:
        severity = "forbidden"
        description = "A page that is a program (HTA), whatever its name"
    strings:
        $tag = "<hta:application" nocase ascii wide
    condition:
        not is_message and filesize < 8MB and $tag
}

rule HTML_smuggling
{
    meta:
        severity = "forbidden"
        description = "A page that builds a program or archive out of its own text and saves it"
    strings:
        $page = /<(html|script|body|svg)/ nocase
        $blob1 = "new Blob(" nocase
        $blob2 = "msSaveOrOpenBlob" nocase
        $blob3 = "createObjectURL" nocase
        $code1 = "atob(" nocase
        $code2 = "fromCharCode" nocase
        $down = /\.download\s*=/ nocase
        $zip = "UEsDBB"
        $exe = "TVqQAA"
        $iso = "data:application/octet-stream;base64," nocase
    condition:
        not is_message and filesize < 32MB and $page and any of ($blob*) and any of ($code*) and ($down or $blob2) and any of ($zip, $exe, $iso)
}

rule Shortcut_that_runs_a_command
{
    meta:
        severity = "infected"
        description = "A Windows shortcut to a command interpreter"
    strings:
        $cmd1 = "cmd.exe" nocase ascii wide
        $cmd2 = "powershell" nocase ascii wide
        $cmd3 = "mshta" nocase ascii wide
        $cmd4 = "wscript" nocase ascii wide
        $cmd5 = "rundll32" nocase ascii wide
        $cmd6 = "regsvr32" nocase ascii wide
        $cmd7 = "msiexec" nocase ascii wide
    condition:
        uint32(0) == 0x0000004c and uint32(4) == 0x00021401 and any of them
}

rule Double_encoded_program
{
    meta:
        severity = "forbidden"
        description = "A program written as base64 inside a file, for something else to decode"
    strings:
        $mz = /TV(qQ|oA|pQ|qA|pB|rh)AA[A-Za-z0-9+\/\r\n]{60}/
        $dos = "This program cannot be run in DOS mode" base64
    condition:
        not is_message and filesize < 32MB and $mz and $dos and kind != "Windows program" and kind != "PDF"
}

rule Hex_encoded_program
{
    meta:
        severity = "forbidden"
        description = "A program written as hexadecimal digits, as in an RTF object"
    strings:
        $mz = "4d5a900003000000" nocase
        $dos = "546869732070726f6772616d2063616e6e6f742062652072756e" nocase
    condition:
        not is_message and filesize < 32MB and $mz and $dos
}

rule RTF_equation_exploit
{
    meta:
        severity = "infected"
        description = "An RTF document with an object of the old equation editor (CVE-2017-11882 and relatives)"
    strings:
        $class1 = "0002ce020000000000c000000000000046" nocase
        $class2 = "4571756174696f6e2e33" nocase
        $class3 = "Equation.3" nocase
        $object = "\\objdata" nocase
        $update = "\\objupdate" nocase
    condition:
        uint32(0) == 0x74725c7b and $object and ($class1 or $class2 or ($class3 and $update))
}

rule Program_inside_picture
{
    meta:
        severity = "suspicious"
        description = "A picture with a program behind it"
    strings:
        $dos = "This program cannot be run in DOS mode"
    condition:
        kind == "picture" and $dos
}

rule OneNote_with_script
{
    meta:
        severity = "forbidden"
        description = "A OneNote section that carries a script or a program"
    strings:
        $file = { e7 16 e3 bd 65 26 11 45 a4 c4 8d 4d 0b 7a 9e ac }
        $bad1 = "WScript" nocase ascii wide
        $bad2 = "powershell" nocase ascii wide
        $bad3 = "<hta:" nocase ascii wide
        $bad4 = "This program cannot be run in DOS mode"
        $bad5 = "cmd /c" nocase ascii wide
    condition:
        kind == "OneNote section" and $file and any of ($bad*)
}
