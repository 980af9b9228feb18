//! PKWARE's traditional cipher: it hides, it does not keep secret. Source: APPNOTE 6.3.10, section 6.1.

/// The state of the traditional cipher.
#[derive(Debug)]
pub struct Keys([u32; 3]);

impl Keys {
    /// As it is after this password.
    pub fn new(password: &[u8]) -> Keys {
        let mut keys = Keys([0x1234_5678, 0x2345_6789, 0x3456_7890]);
        password.iter().for_each(|byte| keys.update(*byte));
        keys
    }

    fn update(&mut self, plain: u8) {
        let [one, two, three] = &mut self.0;
        *one = crc(*one, plain);
        *two = two.wrapping_add(*one & 0xff).wrapping_mul(134_775_813).wrapping_add(1);
        *three = crc(*three, (*two >> 24) as u8);
    }

    fn next(&self) -> u8 {
        let t = (self.0[2] & 0xffff) | 2;
        (t.wrapping_mul(t ^ 1) >> 8) as u8
    }

    /// The next byte, to be written.
    pub fn encrypted(&mut self, plain: u8) -> u8 {
        let byte = plain ^ self.next();
        self.update(plain);
        byte
    }

    /// The next byte, as it was read.
    pub fn decrypted(&mut self, byte: u8) -> u8 {
        let plain = byte ^ self.next();
        self.update(plain);
        plain
    }
}

fn crc(state: u32, byte: u8) -> u32 {
    (state >> 8) ^ CRC[((state ^ u32::from(byte)) & 0xff) as usize]
}

const CRC: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { (value >> 1) ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
};
