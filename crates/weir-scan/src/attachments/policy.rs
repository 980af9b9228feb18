//! What may be attached: the operator's choices.

use crate::suspicion::SuspicionPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What to do about something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// It does not pass.
    Forbid,
    /// It passes.
    Allow,
    /// It counts as not looked at.
    NotScanned,
    /// It passes, and is worth an analysis.
    Suspicious,
}

/// The policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Whether names and types are looked at.
    pub enabled: bool,
    /// Extensions that do not pass, in small letters, without the dot.
    pub forbidden: BTreeSet<String>,
    /// Extensions that do not pass behind another extension: `invoice.pdf.html`.
    pub forbidden_second: BTreeSet<String>,
    /// Programs by content, whatever their name.
    pub programs: Choice,
    /// A name that says something else than the content.
    pub mismatch: Choice,
    /// Archives and documents with a password.
    pub encrypted: Choice,
    /// Archives that are damaged or packed in an unknown way, and pages with more script than is looked through.
    pub unreadable: Choice,
    /// Archives and parts whose own descriptions disagree.
    pub inconsistent: Choice,
    /// RAR and other archives that we do not open.
    pub closed: Choice,
    /// Messages that are encrypted for their reader.
    #[serde(default = "suspicious")]
    pub sealed: Choice,
    /// Documents with macros.
    pub macros: Choice,
    /// What becomes of mail that is suspicious.
    #[serde(default)]
    pub suspicion: SuspicionPolicy,
}

fn suspicious() -> Choice {
    Choice::Suspicious
}

/// What runs when it is opened, on some system that people use, and what carries such things past a warning.
pub const FORBIDDEN: &str = "a3x accda accdb accde accdr accdu ade adp afploc ahk air apk app appcontent-ms appimage appinstaller applescript application appref-ms appx appxbundle \
     asp aspx au3 bat cdxml cer chm cmd cnt com command contact cpl crx csh deb deskthemepack desktop diagcab diagcfg diagpkg dll dmg dqy drv \
     exe fileloc flatpak flatpakref ftploc fxp gadget grp hlp hpj hta htc img inetloc inf ins ipa iqy iso isp its jar jnlp job js jse ksh \
     library-ms lnk mad maf mag mam maq mar mas mau mav maw mcf mda mdb mde mdt mdw mdz mobileconfig mpkg msc msh msh1 msh1xml msh2 msh2xml \
     mshxml msi msix msixbundle msp mst msu ocx odc ops oqy osd osdx ova oxt pcd pif pkg plg ppa ppam ppkg prefpane prf prg printerexport ps1 \
     ps1xml ps2 ps2xml psc1 psc2 psd1 psdm1 psm1 pssc py pyc pyo pyw pyz pyzw rdg rdp reg rpm rqy run saver scf scpt scptd scr sct search-ms \
     searchconnector-ms settingcontent-ms shb shs slk swf sys term terminal theme themepack tool udl url vb vbe vbp vbs vdi vhd vhdx vmdk vncloc \
     vsix vsmacros vsto vsw vxd wdgt webloc webpnp website wim wll workflow ws wsb wsc wsf wsh xbap xla xlam xll xnk xpi";

/// Pages that run scripts: usual by themselves, a disguise behind `.pdf`.
pub const FORBIDDEN_SECOND: &str = "htm html mht mhtml shtml svg xhtml xht";

impl Default for Policy {
    fn default() -> Policy {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        Policy {
            enabled: true,
            forbidden: words(FORBIDDEN),
            forbidden_second: words(FORBIDDEN_SECOND),
            programs: Choice::Forbid,
            mismatch: Choice::Forbid,
            encrypted: Choice::NotScanned,
            unreadable: Choice::NotScanned,
            inconsistent: Choice::Forbid,
            closed: Choice::NotScanned,
            sealed: Choice::Suspicious,
            macros: Choice::Suspicious,
            suspicion: SuspicionPolicy::default(),
        }
    }
}
