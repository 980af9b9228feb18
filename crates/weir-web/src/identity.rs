//! Who asks: client address, subnet, session cookie, and the keys made of them.
