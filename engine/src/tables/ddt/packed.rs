//! Values of entries as they lie in the ZAPs of dedup tables: compressed with zle where that makes them
//! shorter.
//!
//! Source of the facts: OpenZFS 2.4 `ddt_zap.c` (`ddt_zap_compress`).

use codec::compress::{compress, decompress};
use ondisk::blkptr::CompressType;
use ondisk::ddt::{DdtPhys, PackedPhys, PhysForm};
use ondisk::{ByteOrder, Writer};

use crate::dmu::zap::Value;
use crate::error::{Error, Result};

const ORDER: ByteOrder = ByteOrder::Little;
const WHAT: &str = "an entry of a dedup table";

/// The value of an entry.
pub(super) fn pack(phys: &DdtPhys) -> Value {
    let mut writer = Writer::new(ORDER);
    phys.write(&mut writer);
    let bytes = writer.finish();
    let mut shorter = vec![0; bytes.len()];
    let length = compress(CompressType::Zle, 0, &bytes, &mut shorter).filter(|length| *length < bytes.len());
    let (compress, bytes) = match length.and_then(|length| shorter.get(..length)) {
        Some(shorter) => (CompressType::Zle, shorter),
        None => (CompressType::Off, bytes.as_slice()),
    };
    Value::U8(PackedPhys { order: ORDER, compress, bytes }.encode())
}

/// The entry that has this value.
pub(crate) fn unpack(value: &Value, form: PhysForm) -> Result<DdtPhys> {
    let Value::U8(value) = value else { return Err(Error::corrupt(WHAT, "a value that is not of bytes")) };
    let packed = PackedPhys::parse(value).map_err(Error::format(WHAT))?;
    let mut bytes = vec![0; form.size()];
    decompress(packed.compress, packed.bytes, &mut bytes).map_err(|error| Error::corrupt(WHAT, error))?;
    DdtPhys::parse(&bytes, form, packed.order).map_err(Error::format(WHAT))
}

#[cfg(test)]
mod tests {
    use ondisk::Txg;
    use ondisk::ddt::{DdtFlat, DdtSlot};

    use super::*;

    fn flat(word: u64) -> DdtPhys {
        let slot = DdtSlot { dva_words: [[word; 2]; 3], refcount: word, phys_birth: Txg(word) };
        DdtPhys::Flat(DdtFlat { slot, class_start: word })
    }

    #[test]
    fn values_survive_packed_or_not() {
        for (phys, compress) in [
            // zle wants room for its longest run, which so short a value has not.
            (flat(3), CompressType::Off),
            (flat(u64::MAX), CompressType::Off),
            (DdtPhys::unused(PhysForm::Traditional), CompressType::Zle),
        ] {
            let value = pack(&phys);
            let Value::U8(bytes) = &value else { panic!("{value:?}") };
            assert_eq!(PackedPhys::parse(bytes).unwrap().compress, compress, "{phys:?}");
            assert!(bytes.len() <= phys.form().size() + 1);
            assert_eq!(unpack(&value, phys.form()).unwrap(), phys);
        }
        assert!(unpack(&Value::U8(vec![0x8e]), PhysForm::Flat).is_err());
        assert!(unpack(&Value::U64(vec![1]), PhysForm::Flat).is_err());
    }
}
