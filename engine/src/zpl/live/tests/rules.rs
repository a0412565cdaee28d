//! Operations that attributes of files, projects and quotas forbid.

use ondisk::zpl::ZnodeFlags;

use super::*;

fn is_errno<T: std::fmt::Debug>(result: Result<T>, wanted: i32) {
    assert!(matches!(&result, Err(Error::Os { errno, .. }) if *errno == wanted), "{result:?}, not {wanted}");
}

async fn set_flags(zpl: &LiveZpl, file: ObjectId, flags: ZnodeFlags) {
    let set = SetAttributes { flags: Some(flags), ..SetAttributes::default() };
    zpl.set_attributes(file, &set).await.unwrap();
}

#[test]
fn immutable_files_stay_as_they_are_until_they_are_not_immutable() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let options = WriteOptions::default();
    block_on(async {
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        zpl.write(file, 0, b"content", &options).await.unwrap();
        set_flags(&zpl, file, ZnodeFlags::IMMUTABLE).await;
        let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        is_errno(zpl.set_attributes(file, &set).await, errno::EPERM);
        is_errno(zpl.write(file, 100, b"more", &options).await, errno::EPERM);
        is_errno(zpl.truncate(file, 0).await, errno::EPERM);
        is_errno(zpl.allocate(file, AllocateMode::Punch, 0, 3).await, errno::EPERM);
        is_errno(zpl.require_open_for_writing(file, true, true).await, errno::EPERM);
        is_errno(zpl.unlink(root, b"file").await, errno::EPERM);
        is_errno(zpl.link(file, root, b"link").await, errno::EPERM);
        is_errno(zpl.rename(root, b"file", root, b"other", RenameMode::Replace).await, errno::EPERM);
        let any = (XattrSet::Any, XattrPlace::Attributes);
        is_errno(zpl.set_xattr(file, b"user.a", b"b", any.0, any.1).await, errno::EPERM);
        zpl.accessed(file, Time::now()).await.unwrap();
        let touched = SetAttributes { atime: Some(Time::now()), touched: true, ..SetAttributes::default() };
        is_errno(zpl.set_attributes(file, &touched).await, errno::EPERM);
        set_flags(&zpl, file, ZnodeFlags(0)).await;
        zpl.set_attributes(file, &set).await.unwrap();
        zpl.unlink(root, b"file").await.unwrap();

        let dir = zpl.create(root, b"dir", &NewNode { kind: NewKind::Directory, ..FILE }).await.unwrap();
        let inside = zpl.create(dir, b"inside", &FILE).await.unwrap();
        set_flags(&zpl, dir, ZnodeFlags::IMMUTABLE).await;
        is_errno(zpl.create(dir, b"new", &FILE).await, errno::EPERM);
        is_errno(zpl.unlink(dir, b"inside").await, errno::EPERM);
        is_errno(zpl.rmdir(root, b"dir").await, errno::EPERM);
        zpl.write(inside, 0, b"goes", &options).await.unwrap();
    });
}

#[test]
fn append_only_files_grow_and_files_that_are_not_to_be_unlinked_keep_their_names() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let append = WriteOptions { append: true, ..WriteOptions::default() };
    block_on(async {
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        zpl.write(file, 0, b"content", &append).await.unwrap();
        set_flags(&zpl, file, ZnodeFlags::APPENDONLY).await;
        is_errno(zpl.write(file, 3, b"within", &WriteOptions::default()).await, errno::EPERM);
        assert_eq!(zpl.write(file, 0, b"more", &append).await.unwrap(), 7);
        is_errno(zpl.truncate(file, 3).await, errno::EPERM);
        let times = SetAttributes { mtime: Some(Time::now()), ..SetAttributes::default() };
        is_errno(zpl.set_attributes(file, &times).await, errno::EPERM);
        zpl.set_attributes(file, &SetAttributes { touched: true, ..times }).await.unwrap();
        let atime = SetAttributes { atime: Some(Time::now()), ..SetAttributes::default() };
        is_errno(zpl.set_attributes(file, &atime).await, errno::EPERM);
        is_errno(zpl.unlink(root, b"file").await, errno::EPERM);
        is_errno(zpl.require_open_for_writing(file, false, true).await, errno::EPERM);
        zpl.require_open_for_writing(file, true, false).await.unwrap();
        let kept = zpl.create(root, b"kept", &FILE).await.unwrap();
        set_flags(&zpl, kept, ZnodeFlags::NOUNLINK).await;
        is_errno(zpl.unlink(root, b"kept").await, errno::EPERM);
        zpl.write(kept, 0, b"content", &append).await.unwrap();
    });
}

#[test]
fn projects_are_inherited_and_kept_apart() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let dir = NewNode { kind: NewKind::Directory, ..FILE };
        let (one, two) = (zpl.create(root, b"one", &dir).await, zpl.create(root, b"two", &dir).await);
        let (one, two) = (one.unwrap(), two.unwrap());
        for (dir, project) in [(one, 11), (two, 12)] {
            let set = SetAttributes {
                project: Some(project),
                flags: Some(ZnodeFlags::PROJINHERIT),
                ..SetAttributes::default()
            };
            zpl.set_attributes(dir, &set).await.unwrap();
        }
        let file = zpl.create(one, b"file", &FILE).await.unwrap();
        let link = NewNode { kind: NewKind::Symlink(b"file"), ..FILE };
        let link = zpl.create(one, b"link", &link).await.unwrap();
        let deep = zpl.create(one, b"deep", &dir).await.unwrap();
        for (id, inherits) in [(file, true), (link, false), (deep, true)] {
            let stat = zpl.zpl().stat(id).await.unwrap();
            assert_eq!((stat.project, stat.flags.contains(ZnodeFlags::PROJINHERIT)), (11, inherits));
        }
        assert_eq!(zpl.zpl().stat(zpl.create(root, b"none", &FILE).await.unwrap()).await.unwrap().project, 0);
        is_errno(zpl.rename(one, b"file", two, b"file", RenameMode::Replace).await, errno::EXDEV);
        is_errno(zpl.rename(root, b"none", two, b"none", RenameMode::Replace).await, errno::EXDEV);
        is_errno(zpl.link(file, two, b"file").await, errno::EXDEV);
        zpl.rename(one, b"file", deep, b"file", RenameMode::Replace).await.unwrap();
        zpl.rename(one, b"link", root, b"out", RenameMode::Replace).await.unwrap();
        let set = SetAttributes { project: Some(u64::from(u32::MAX)), ..SetAttributes::default() };
        is_errno(zpl.set_attributes(file, &set).await, errno::EINVAL);
        // The files of extended attributes have the owners of their file.
        zpl.set_xattr(file, b"user.x", b"x", XattrSet::Any, XattrPlace::Directory).await.unwrap();
        let give =
            SetAttributes { uid: Some(5), gid: Some(6), project: Some(13), ..SetAttributes::default() };
        zpl.set_attributes(file, &give).await.unwrap();
        let xattrs = zpl.zpl().node(file).await.unwrap().attributes.number(Attr::Xattr).unwrap();
        let inside = zpl.read_dir(ObjectId(xattrs), 2, 10).await.unwrap();
        for id in [file, ObjectId(xattrs), inside[0].object] {
            let stat = zpl.zpl().stat(id).await.unwrap();
            assert_eq!((stat.uid, stat.gid, stat.project), (5, 6, 13));
        }
        // The project of a file that had none is where the accounting looks for it.
        let none = zpl.lookup(root, b"none").await.unwrap().unwrap();
        let set = SetAttributes { project: Some(7), ..SetAttributes::default() };
        zpl.set_attributes(none, &set).await.unwrap();
        let bonus = objset.object(none).await.unwrap().bonus();
        assert_eq!(bonus[8 + 128..8 + 136], 7u64.to_le_bytes());
    });
}

#[test]
fn the_mode_follows_the_acl_the_acl_follows_the_mode_and_new_files_inherit() {
    use crate::zpl::posix_acl::tests::acl;
    use crate::zpl::{AclType, POSIX_ACL_ACCESS, POSIX_ACL_DEFAULT};
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    const NONE: u32 = u32::MAX;
    let entries = |mask| acl(&[(1, 7, NONE), (2, 7, 501), (4, 5, NONE), (16, mask, NONE), (32, 1, NONE)]);
    block_on(async {
        let masked = NewNode { mode: 0o666, umask: 0o22, ..FILE };
        let file = zpl.create(root, b"file", &masked).await.unwrap();
        let mode = async |file| zpl.zpl().stat(file).await.unwrap().mode & 0o7777;
        let xattr = async |file, name| zpl.zpl().node(file).await.unwrap().xattr(name).await.unwrap();
        let set = async |file, name, value: &[u8]| {
            zpl.set_xattr(file, name, value, XattrSet::Any, XattrPlace::Attributes).await
        };
        assert_eq!(mode(file).await, 0o644);
        zpl.set(&Settings { acl: AclType::Posix, ..Settings::default() });
        set(file, POSIX_ACL_ACCESS, &entries(6)).await.unwrap();
        assert_eq!(mode(file).await, 0o761);
        let chmod = SetAttributes { mode: Some(0o4740), ..SetAttributes::default() };
        zpl.set_attributes(file, &chmod).await.unwrap();
        let want = acl(&[(1, 7, NONE), (2, 7, 501), (4, 5, NONE), (16, 4, NONE), (32, 0, NONE)]);
        assert_eq!(xattr(file, POSIX_ACL_ACCESS).await, Some(want));
        let plain = acl(&[(1, 6, NONE), (4, 4, NONE), (32, 4, NONE)]);
        set(file, POSIX_ACL_ACCESS, &plain).await.unwrap();
        assert_eq!((mode(file).await, xattr(file, POSIX_ACL_ACCESS).await), (0o4644, None));
        is_errno(set(file, POSIX_ACL_DEFAULT, &plain).await, errno::EACCES);
        is_errno(set(file, POSIX_ACL_ACCESS, b"nonsense").await, errno::EINVAL);

        let dir = NewNode { kind: NewKind::Directory, mode: 0o777, ..masked };
        let top = zpl.create(root, b"top", &dir).await.unwrap();
        assert_eq!(mode(top).await, 0o755);
        set(top, POSIX_ACL_DEFAULT, &entries(6)).await.unwrap();
        assert_eq!(mode(top).await, 0o755);
        let inner = zpl.create(top, b"inner", &dir).await.unwrap();
        let file = zpl.create(inner, b"file", &masked).await.unwrap();
        assert_eq!((mode(inner).await, mode(file).await), (0o761, 0o660));
        assert_eq!(xattr(inner, POSIX_ACL_DEFAULT).await, Some(entries(6)));
        assert_eq!(xattr(inner, POSIX_ACL_ACCESS).await, Some(entries(6)));
        let want = acl(&[(1, 6, NONE), (2, 7, 501), (4, 5, NONE), (16, 6, NONE), (32, 0, NONE)]);
        assert_eq!(xattr(file, POSIX_ACL_ACCESS).await, Some(want));
    });
}

#[test]
fn nfs4_acls_are_inherited_survive_what_aclmode_lets_them_and_follow_the_owner() {
    use ondisk::ByteOrder;
    use ondisk::zpl::{Ace, AceType, AceWho, Fuid, ace_flags, ace_mask, write_aces};

    use crate::zpl::{AclInherit, AclMode, AclRules};
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    let inherit = ace_flags::FILE_INHERIT | ace_flags::DIRECTORY_INHERIT;
    let mask = ace_mask::READ_DATA | ace_mask::WRITE_DATA;
    let ace = Ace { ace_type: AceType::Allow, flags: inherit, mask, fuid: Some(Fuid(501)), object: None };
    block_on(async {
        let dir = NewNode { kind: NewKind::Directory, mode: 0o755, ..FILE };
        let top = zpl.create(root, b"top", &dir).await.unwrap();
        {
            let node = zpl.node(top).await.unwrap();
            let aces = [[ace].as_slice(), &node.znode.acl().await.unwrap()].concat();
            let flags = node.flags().unwrap().0 & !ZnodeFlags::ACL_TRIVIAL.0 | ZnodeFlags::INHERIT_ACE.0;
            let values = Values::default()
                .number(Attr::Flags, flags)
                .number(Attr::DaclCount, aces.len() as u64)
                .bytes(Attr::DaclAces, &write_aces(&aces, 1, ByteOrder::Little).unwrap());
            let tx = zpl.begin_freeing().await.unwrap();
            zpl.update(&node.object, &tx, values).await.unwrap();
        }
        let rules = |inherit, mode| {
            zpl.set(&Settings { acl_rules: AclRules { inherit, mode }, ..Settings::default() });
        };
        // The entries for the user, and the mode.
        let told = async |file| {
            let node = zpl.zpl().node(file).await.unwrap();
            let aces = node.acl().await.unwrap();
            let is_users = |ace: &&Ace| ace.who() == AceWho::User(Fuid(501));
            (aces.iter().find(is_users).map(|ace| (ace.flags, ace.mask)), node.mode() & 0o7777)
        };
        let chmod = async |file, mode| {
            zpl.set_attributes(file, &SetAttributes { mode: Some(mode), ..SetAttributes::default() }).await
        };
        rules(AclInherit::Restricted, AclMode::Passthrough);
        let inner = zpl.create(top, b"inner", &dir).await.unwrap();
        let file = zpl.create(inner, b"file", &NewNode { mode: 0o640, ..FILE }).await.unwrap();
        assert_eq!(told(inner).await, (Some((inherit | ace_flags::INHERITED, mask)), 0o755));
        assert_eq!(told(file).await, (Some((ace_flags::INHERITED, mask)), 0o640));
        chmod(file, 0o4604).await.unwrap();
        assert_eq!(told(file).await, (Some((ace_flags::INHERITED, mask)), 0o4604));
        rules(AclInherit::Discard, AclMode::Restricted);
        is_errno(chmod(file, 0o600).await, errno::EPERM);
        let none = zpl.create(top, b"none", &NewNode { mode: 0o600, ..FILE }).await.unwrap();
        assert_eq!(told(none).await, (None, 0o600));
        chmod(none, 0o644).await.unwrap();
        is_errno(chmod(inner, 0o500).await, errno::EPERM);
        rules(AclInherit::Restricted, AclMode::GroupMask);
        chmod(file, 0o440).await.unwrap();
        assert_eq!(told(file).await, (Some((ace_flags::INHERITED, ace_mask::READ_DATA)), 0o440));
        let plain = zpl.create(top, b"plain", &NewNode { mode: 0o060, ..FILE }).await.unwrap();
        let give = SetAttributes { uid: Some(501), ..SetAttributes::default() };
        rules(AclInherit::Restricted, AclMode::Discard);
        let given = zpl.create(top, b"given", &NewNode { mode: 0o400, ..FILE }).await.unwrap();
        zpl.set_attributes(given, &give).await.unwrap();
        // The entry is for its new owner, and before those of the mode.
        assert_eq!(told(given).await.1, 0o600);
        chmod(plain, 0o640).await.unwrap();
        assert_eq!(told(plain).await, (None, 0o640));
        assert!(zpl.zpl().stat(plain).await.unwrap().flags.contains(ZnodeFlags::ACL_TRIVIAL));
    });
}

#[test]
fn whoever_asks_for_an_attribute_of_a_file_that_has_none_waits_for_nobody() {
    use futures_util::FutureExt;
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let file = block_on(zpl.create(zpl.zpl().root(), b"file", &FILE)).unwrap();
    let changed = block_on(zpl.locks.lock(&[file]));
    assert_eq!(zpl.xattr(file, b"user.a").now_or_never().unwrap().unwrap(), None);
    assert_eq!(zpl.list_xattrs(file).now_or_never().unwrap().unwrap().len(), 0);
    drop(changed);
    for place in [XattrPlace::Attributes, XattrPlace::Directory] {
        block_on(zpl.set_xattr(file, b"user.a", b"value", XattrSet::Any, place)).unwrap();
        let changed = block_on(zpl.locks.lock(&[file]));
        assert!(zpl.xattr(file, b"user.a").now_or_never().is_none(), "{place:?}");
        drop(changed);
        assert_eq!(block_on(zpl.xattr(file, b"user.a")).unwrap().as_deref(), Some(&b"value"[..]));
        assert_eq!(block_on(zpl.list_xattrs(file)).unwrap(), [b"user.a"]);
    }
    assert!(matches!(block_on(zpl.xattr(ObjectId(1 << 20), b"user.a")), Err(Error::NotFound(_))));
}

#[test]
fn a_read_only_file_is_opened_to_be_written_by_root_alone() {
    let Some((txgs, objset)) = objset(CaseSensitivity::Sensitive) else { return };
    let zpl = open(&txgs, &objset);
    let root = zpl.zpl().root();
    block_on(async {
        let file = zpl.create(root, b"file", &FILE).await.unwrap();
        set_flags(&zpl, file, ZnodeFlags::READONLY).await;
        is_errno(zpl.require_open_for_writing(file, true, false).await, errno::EPERM);
        zpl.require_open_for_writing(file, false, true).await.unwrap();
        // A handle that was opened before can still write.
        zpl.write(file, 0, b"content", &WriteOptions::default()).await.unwrap();
    });
}
