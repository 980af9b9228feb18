//! Types that some program turns into an extension when it saves a part that has none.

/// What runs when it is opened, by the type under which it is sent.
const EXTENSIONS: [(&str, &str); 33] = [
    ("application/bat", "bat"),
    ("application/cmd", "cmd"),
    ("application/com", "com"),
    ("application/dos-exe", "exe"),
    ("application/exe", "exe"),
    ("application/hta", "hta"),
    ("application/java-archive", "jar"),
    ("application/javascript", "js"),
    ("application/ecmascript", "js"),
    ("application/msdos-windows", "exe"),
    ("application/vnd.microsoft.portable-executable", "exe"),
    ("application/vnd.ms-htmlhelp", "chm"),
    ("application/x-bat", "bat"),
    ("application/x-dosexec", "exe"),
    ("application/x-exe", "exe"),
    ("application/x-hta", "hta"),
    ("application/x-java-archive", "jar"),
    ("application/x-java-jnlp-file", "jnlp"),
    ("application/x-javascript", "js"),
    ("application/x-ms-dos-executable", "exe"),
    ("application/x-ms-installer", "msi"),
    ("application/x-ms-shortcut", "lnk"),
    ("application/x-msdos-program", "exe"),
    ("application/x-msdownload", "exe"),
    ("application/x-msi", "msi"),
    ("application/x-powershell", "ps1"),
    ("application/x-vbs", "vbs"),
    ("application/x-vbscript", "vbs"),
    ("application/x-winexe", "exe"),
    ("text/ecmascript", "js"),
    ("text/javascript", "js"),
    ("text/scriptlet", "sct"),
    ("text/vbscript", "vbs"),
];

/// The extension that stands for a type.
pub(super) fn extension(media_type: &str) -> Option<&'static str> {
    EXTENSIONS.iter().find(|(known, _)| *known == media_type).map(|(_, extension)| *extension)
}
