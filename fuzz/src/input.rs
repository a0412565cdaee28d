//! Taking an input apart, and the rules that many targets share.

use ondisk::ByteOrder;

/// Both byte orders, in which everything is parsed.
pub(crate) const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// The rest of an input. Numbers that are not there any more are 0.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next bytes, padded with zeroes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        for (to, from) in array.iter_mut().zip(self.take(N)) {
            *to = *from;
        }
        array
    }

    /// The next bytes, as many as there are.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// One of several.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let index = usize::from(self.u8());
        from.get(index % from.len().max(1)).copied()
    }
}

/// What was parsed encodes, what was encoded parses, and both ways give the same bytes.
pub(crate) fn stable<T>(
    bytes: &[u8],
    parse: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Option<Vec<u8>>,
) -> Option<T> {
    let first = parse(bytes)?;
    let Some(encoded) = encode(&first) else { panic!("parsed and cannot be encoded") };
    let Some(second) = parse(&encoded) else { panic!("encoded and cannot be parsed: {encoded:02x?}") };
    assert!(encode(&second).as_ref() == Some(&encoded), "encodes otherwise the second time");
    Some(first)
}

/// An iterator over `bytes` ends. Gives the items.
pub(crate) fn ends<T>(bytes: &[u8], items: impl Iterator<Item = T>) -> Vec<T> {
    let limit = bytes.len() + 1;
    let items: Vec<T> = items.take(limit + 1).collect();
    assert!(items.len() <= limit, "more items than bytes");
    items
}

/// [`stable`] for structures of fixed layout, in both byte orders.
macro_rules! stable_in_both_orders {
    ($bytes:expr, $($type:ty),+ $(,)?) => {
        for order in $crate::input::ORDERS {
            $($crate::input::stable(
                $bytes,
                |bytes| <$type>::parse(bytes, order).ok(),
                |value| Some(value.encode(order).to_vec()),
            );)+
        }
    };
}
pub(crate) use stable_in_both_orders;
