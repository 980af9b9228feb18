//! What the header of a Windows program says: for which processor it is, and whether Wine can run it.

/// How much of a file is looked at.
pub(crate) const HEAD: usize = 64 * 1024;

/// A program or library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pe {
    machine: u16,
    is_library: bool,
    is_dotnet: bool,
    subsystem: u16,
}

const LIBRARY: u16 = 0x2000;
const NATIVE: u16 = 1;

impl Pe {
    /// That of a file that begins so; none if it is no such file.
    pub(crate) fn read(head: &[u8]) -> Option<Pe> {
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at.checked_add(2)?)?.try_into().ok()?));
        let whole = |at: usize| Some(u32::from_le_bytes(head.get(at..at.checked_add(4)?)?.try_into().ok()?));
        if !head.starts_with(b"MZ") {
            return None;
        }
        let at = whole(0x3c)? as usize;
        if head.get(at..at.checked_add(4)?)? != b"PE\0\0" {
            return None;
        }
        let (machine, flags, optional) = (half(at + 4)?, half(at + 22)?, at + 24);
        // The directories begin further back where addresses are longer; the fifteenth is that of .NET.
        let directories = optional + if half(optional)? == 0x20b { 112 } else { 96 };
        let is_dotnet = whole(directories + 14 * 8).is_some_and(|address| address != 0);
        Some(Pe { machine, is_library: flags & LIBRARY != 0, is_dotnet, subsystem: half(optional + 68)? })
    }

    pub(crate) fn is_library(&self) -> bool {
        self.is_library
    }

    pub(crate) fn is_short(&self) -> bool {
        self.machine == 0x14c
    }

    /// Why this guest does not run it, in words; none if it does.
    pub(crate) fn obstacle(&self) -> Option<String> {
        match (self.machine, self.subsystem) {
            _ if self.is_dotnet => Some("it is a .NET program, which this guest does not run".into()),
            (_, NATIVE) => Some("it is a driver or a native program, which this guest does not run".into()),
            (0x14c | 0x8664, _) => None,
            (0xaa64 | 0x1c0 | 0x1c4, _) => Some("it is a program for ARM, which this guest does not run".into()),
            (other, _) => Some(format!("it is a program for processor {other:#x}, which this guest does not run")),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The smallest head that says this.
    pub(crate) fn head(machine: u16, flags: u16, subsystem: u16, dotnet: bool) -> Vec<u8> {
        let mut head = vec![0; 512];
        head[..2].copy_from_slice(b"MZ");
        head[0x3c] = 0x40;
        head[0x40..0x44].copy_from_slice(b"PE\0\0");
        head[0x44..0x46].copy_from_slice(&machine.to_le_bytes());
        head[0x56..0x58].copy_from_slice(&flags.to_le_bytes());
        head[0x58..0x5a].copy_from_slice(&0x20b_u16.to_le_bytes());
        head[0x9c..0x9e].copy_from_slice(&subsystem.to_le_bytes());
        head[0x58 + 112 + 14 * 8] = u8::from(dotnet);
        head
    }

    #[test]
    fn what_wine_cannot_run_is_said_in_words() {
        let of = |head: &[u8]| Pe::read(head).and_then(|pe| pe.obstacle());
        assert_eq!(of(&head(0x8664, 0x22, 3, false)), None);
        assert!(of(&head(0x8664, 0x22, 3, true)).unwrap().contains(".NET"));
        assert!(of(&head(0x8664, 0x22, 1, false)).unwrap().contains("driver"));
        assert!(of(&head(0xaa64, 0x22, 2, false)).unwrap().contains("ARM"));
        assert!(of(&head(0x9999, 0x22, 2, false)).unwrap().contains("0x9999"));
        assert!(Pe::read(&head(0x8664, 0x2022, 2, false)).unwrap().is_library());
    }

    #[test]
    fn half_a_header_is_none() {
        let whole = head(0x14c, 2, 2, false);
        for cut in 0..0x9e {
            assert_eq!(Pe::read(&whole[..cut]), None, "{cut}");
        }
        let mut far = whole;
        far[0x3c..0x40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Pe::read(&far), None);
    }
}
