#!/usr/bin/env python3
"""Which cases of OpenZFS's test suite Cenote is asked, and what became of them. For scripts/run-zts.

cases.py classes                                    how many cases there are of each class, and why they are left out
cases.py groups                                     the groups with cases that are asked
cases.py path DIR                                   makes DIR, the only PATH of the cases
cases.py parameters DIR                             makes DIR/zfs/parameters: files that change nothing
cases.py runfile GROUP OUT SECONDS [CASE,CASE...]   the run file of a group, for test-runner.py
cases.py again OUTPUT                               the cases that failed after another of their group
cases.py compare RESULTS LIST                       counts the results; exit 1 where they differ from the list
cases.py head LIST                                  makes the numbers of the list from its tables of cases

The list (scripts/zts-results.md) has a table of the cases that fail and one of those that were not run, each with the reason. All
other cases that are asked pass. So the numbers of each group, and those of all, follow from the tables and from the classes: they
are made, never typed.

A case is of the first class whose words its script, or the setup of its group, has:

| class | what such a case needs |
|---|---|
| feature | a feature that Cenote does not have yet: `FEATURES` shrinks when one comes |
| device | device nodes of volumes |
| kernel | something else of the kernel module, or a kernel module that is not OpenZFS's |
| tool | a program of OpenZFS that talks to its module, or tests its own code |
| tunable | parameters of the module: asked, as many cases only set what holds here anyway |
| plain | nothing of these: asked |
"""
import collections
import functools
import grp
import os
import re
import shutil
import sys

SUITE = '/usr/share/zfs/zfs-tests'
RUNFILES = '/usr/share/zfs/runfiles'
FUNCTIONAL = 'tests/functional/'
ASKED = ('plain', 'tunable')

# Whole groups that need a feature to come.
FEATURES = {
    'channel_program': 'zfs program', 'zfs_program': 'zfs program', 'redacted_send': 'redaction',
    'zpool_split': 'split', 'removal': 'removal of data vdevs', 'raidz': 'raidz expansion',
}
# Whole groups that ask something else than a storage system in userspace.
GROUPS = {
    'zvol': ('device', 'device nodes of volumes'), 'mmp': ('tunable-only', 'multihost parameters, zhack, ztest'),
    'deadman': ('tunable-only', 'parameters of the deadman'), 'zap_shrink': ('tunable-only', 'parameters'),
    'crypto': ('tool', 'tests OpenZFS\'s own code'), 'hkdf': ('tool', 'tests OpenZFS\'s own code'), 'btree': ('tool', 'tests OpenZFS\'s own code'), 'pam': ('tool', 'OpenZFS\'s module for PAM'),
    'zhack': ('tool', 'zhack'), 'pyzfs': ('kernel', '/dev/zfs'), 'libzfs': ('kernel', '/dev/zfs'), 'zpool_influxdb': ('kernel', '/dev/zfs'),
    'zfs_sysfs': ('kernel', '/sys/module/zfs'), 'user_namespace': ('kernel', 'zones'), 'zfs_jail': ('kernel', 'jails of FreeBSD'),
    'idmap_mount': ('kernel', 'mounts with mapped ids'), 'luks': ('kernel', 'device mapper'), 'vdev_disk': ('kernel', 'block layer'),
    'simd': ('kernel', '/proc and /sys of the module'), 'procfs': ('kernel', '/proc/spl'),
    'privilege': ('kernel', 'privileges of Solaris'), 'rootpool': ('kernel', 'the root filesystem in a pool'),
}
# Cases that run a test of OpenZFS's own code.
OWN_CODE = {'run_edonr_test', 'run_sha2_test', 'run_skein_test', 'run_blake3_test', 'zpool_create_draid_004_pos'}
# Groups in which only what Cenote can remove is removed: logs, caches, spares.
REMOVES_NO_DATA = {'events', 'slog', 'cache', 'zpool_remove', 'zpool_add', 'cachefile', 'inuse', 'alloc_class', 'zpool_status', 'history', 'zpool_set'}
# The cases of these groups that remove more.
REMOVES_DATA = {'alloc_class_012_pos'}
REMOVAL = re.compile(r'REMOVAL|\bzpool remove\b')
DEVICE = r'ZVOL_R?DEVDIR|/dev/zvol|block_device_wait.*zvol|\bnewfs\b.*vol|swapon|swapctl|is_swap'
# What a script says -> class, reason; the first that is found counts.
WORDS = [(re.compile(words, re.M), kind, reason) for words, kind, reason in [
    (r'\bzfs redact\b', 'feature', 'redaction'),
    (r'--saved|\bzfs send -S\b', 'feature', 'sending what was received in part'),
    (r'\bbadsend\b|\bsend_doall\b|\bzstream token\b', 'kernel', '/dev/zfs'),
    (r'\bzfs (recv|receive) -c\b', 'feature', 'corrective receive'),
    (r'\bzpool split\b', 'feature', 'split'),
    (r'\bzpool (attach|replace) -[a-z]*s|(?<!l2_)rebuild(?!_blocks|_enabled|ing L2ARC)|for arg in "" "-s"|"sequential"', 'feature', 'sequential rebuild'),
    (r'(replace|spare\w*=|SPARE\d?=|wait_vdev_state).*\bdraid\S*-0-|verify_draid', 'feature', 'distributed spares of draid'),
    (r'\bzfs program\b|log_must_program', 'feature', 'zfs program'),
    (r'/dev/zfs\b', 'kernel', '/dev/zfs'),
    (r'scsi_debug', 'kernel', 'scsi_debug'),
    (r'mdadm|dmsetup|cryptsetup|multipath', 'kernel', 'device mapper, md'),
    (r'/proc/spl|\bkstat (-g )?(dbufs|dbgmsg|import_progress)|kstat_pool .*iostats', 'kernel', 'kstats'),
    (DEVICE, 'device', 'device nodes of volumes'),
    (r'showmount|\bnfs\b', 'kernel', 'NFS server'),
    (r'\bztest\b|\bzhack\b|raidz_test|zfs_ids_to_path|libzfs_input_check|dbufstat|zilstat', 'tool', 'a tool of OpenZFS'),
    (r'user_ns_exec|unshare -', 'kernel', 'zones'),
    # The last one, as its cases are asked.
    (r'\b[gs]et_tunable(32|64)?\b|save_tunable|restore_tunable|/sys/module/zfs|set_zfs_txg_timeout|tunable_exists', 'tunable', 'parameters'),
]]

# Reasons that scripts of a group name, but not of what they do on Linux: only filesystems are delegated there.
NOT_ON_LINUX = {'delegate': {'device nodes of volumes'}}

# What is looked for in the functions that a script calls, too.
BY_LIBRARY = {'redaction', 'split', 'device nodes of volumes'}

# OpenZFS 2.3's defaults of the parameters that cases read. All others are 0.
PARAMETERS = {
    'zfs_async_block_max_blocks': 2**64 - 1, 'zfs_commit_timeout_pct': 10, 'zfs_compressed_arc_enabled': 1, 'dbuf_cache_shift': 5,
    'zfs_deadman_checktime_ms': 60000, 'zfs_deadman_failmode': 'wait', 'zfs_deadman_synctime_ms': 600000, 'zfs_deadman_ziotime_ms': 300000,
    'zfs_dmu_offset_next_sync': 1, 'zfs_initialize_chunk_size': 1 << 20, 'zfs_initialize_value': 0xdeadbeefdeadbeee,
    'l2arc_feed_again': 1, 'l2arc_feed_min_ms': 200, 'l2arc_feed_secs': 1, 'l2arc_headroom': 8, 'l2arc_headroom_boost': 200,
    'l2arc_meta_percent': 33, 'l2arc_noprefetch': 1, 'l2arc_rebuild_blocks_min_l2size': 1 << 30, 'l2arc_rebuild_enabled': 1,
    'l2arc_write_boost': 1 << 25, 'l2arc_write_max': 1 << 25,
    'zfs_livelist_max_entries': 500000, 'zfs_livelist_min_percent_shared': 75, 'zfs_max_dataset_nesting': 50,
    'zfs_multihost_fail_intervals': 10, 'zfs_multihost_import_intervals': 20, 'zfs_multihost_interval': 1000,
    'zfs_remove_max_segment': 1 << 24, 'spa_asize_inflation': 24, 'spa_load_verify_data': 1, 'spa_load_verify_metadata': 1,
    'zfs_trim_extent_bytes_min': 32768, 'zfs_trim_txg_batch': 32, 'zfs_txg_timeout': 5, 'vdev_file_logical_ashift': 9,
    'vdev_file_physical_ashift': 9, 'zfs_vdev_max_auto_ashift': 14, 'zfs_vdev_min_ms_count': 16, 'zfs_bclone_enabled': 1, 'zfs_checksum_events_per_second': 20,
    'zfs_resilver_defer_percent': 10,
    'zfs_dio_enabled': 1, 'zfs_zil_saxattr': 1, 'zfs_lua_max_memlimit': 104857600, 'zvol_volmode': 1,
}

Case = collections.namedtuple('Case', 'group section name run')


@functools.cache
def read(path):
    with open(path, errors='replace') as file:
        return file.read()


def script(group, name):
    """The script of a case, or None."""
    places = (f'{SUITE}/{FUNCTIONAL}{group}/{name}{end}' for end in ('', '.ksh', '.sh'))
    return next((place for place in places if os.path.isfile(place)), None)


def code(path):
    return ''.join(line for line in read(path).splitlines(True) if not line.strip().startswith('#'))


def libraries(path):
    """The files of the suite's groups that a script takes in, and what they take in."""
    found, pending = [], [path]
    while pending:
        for name in re.findall(r'^\s*\. \$STF_SUITE/(tests/functional/\S+)', read(pending.pop()), re.M):
            library = f'{SUITE}/{name}'
            if library not in found and os.path.isfile(library):
                found.append(library)
                pending.append(library)
    return found


def names_with(words, path):
    """The functions and variables of a script's libraries that have something to do with what `words` finds."""
    named, texts = set(), {}
    for library in libraries(path):
        text = code(library)
        texts.update(re.findall(r'^function (\w+)[^{]*(\{.*?^\})', text, re.M | re.S))
        texts.update(re.findall(r'^(?:export )?(\w+)=(.*)$', text, re.M))
    while True:
        pattern = re.compile('|'.join([words] + [rf'\b{name}\b' for name in sorted(named)]))
        more = {name for name, text in texts.items() if name not in named and pattern.search(text)}
        if not more:
            return named
        named |= more


def cases():
    """All cases of the suite, each with the properties of its group's section in the run file."""
    seen = set()
    for runfile in ('common', 'linux'):
        text = read(f'{RUNFILES}/{runfile}.run')
        for section, body in re.findall(r'^\[(tests/[^\]]+)\]\s*$(.*?)(?=^\[|\Z)', text, re.M | re.S):
            tests = re.search(r'^tests = \[(.*?)\]', body, re.M | re.S)
            if not tests or '/perf/' in section:
                continue
            group = section.split(':')[0].removeprefix(FUNCTIONAL)
            run = dict(re.findall(r'^(\w+) =[ \t]*(.*)$', body, re.M))
            for name in re.findall(r"'([^']+)'", tests.group(1)):
                if (group, name) not in seen:
                    seen.add((group, name))
                    yield Case(group, section, name, run)


def classify(case):
    """The class of a case, and why."""
    base = os.path.basename(case.group)
    if case.name in OWN_CODE:
        return 'tool', 'tests OpenZFS\'s own code'
    missing = next((FEATURES[part] for part in case.group.split('/') if part in FEATURES), None)
    if missing:
        return 'feature', missing
    if base in GROUPS:
        return GROUPS[base]
    path = script(case.group, case.name)
    if path is None:
        return 'kernel', 'no script'
    source = code(path)
    if (base not in REMOVES_NO_DATA or case.name in REMOVES_DATA) and REMOVAL.search(source):
        return 'feature', 'removal of data vdevs'
    setup = script(case.group, 'setup')
    for text in [source] + ([code(setup)] if setup else []):
        for words, kind, reason in WORDS:
            if reason not in NOT_ON_LINUX.get(base, ()) and words.search(text):
                return kind, reason
    by_library = [words for words in WORDS if words[2] in BY_LIBRARY and words[2] not in NOT_ON_LINUX.get(base, ())]
    if base not in REMOVES_NO_DATA:
        by_library.append((REMOVAL, 'feature', 'removal of data vdevs'))
    for words, kind, reason in by_library:
        names = names_with(words.pattern, path)
        if names and re.search('|'.join(rf'\b{name}\b' for name in names), source):
            return kind, reason
    return 'plain', ''


def asked():
    return [case for case in cases() if classify(case)[0] in ASKED]


def print_classes():
    of_class, of_reason = collections.Counter(), collections.Counter()
    for case in cases():
        kind, reason = classify(case)
        of_class[kind] += 1
        of_reason[kind, reason] += 1
    total = sum(of_class.values())
    print(f'{total} cases, of which {sum(of_class[kind] for kind in ASKED)} are asked')
    for (kind, reason), count in sorted(of_reason.items(), key=lambda item: -item[1]):
        print(f'{count:5} {kind:13} {reason}')


LOSETUP = '''[ "$1" = -f ] || exec {losetup} "$@"
shift
for loop in $(seq "$ZTS_FIRST_LOOP" $((ZTS_FIRST_LOOP + 7))); do
  [ ! -e "/sys/block/loop$loop/loop" ] || continue
  [ $# -gt 0 ] || exec echo "/dev/loop$loop"
  exec {losetup} "/dev/loop$loop" "$@"
done
echo "losetup: no device of this job is free" >&2
exit 1'''


def make_path(directory):
    """Links to the commands that the suite names, Cenote in place of OpenZFS's."""
    os.mkdir(directory)
    variables = {}
    for name, text in re.findall(r"^export (\w+)='(.*?)'", read(f'{SUITE}/include/commands.cfg'), re.M | re.S):
        variables[name] = text.split()
    own = variables['ZFSTEST_FILES']
    system = variables['SYSTEM_FILES_COMMON'] + variables['SYSTEM_FILES_LINUX']
    tools = ['zhack', 'ztest', 'raidz_test', 'zgenhostid', 'zstream', 'zfs_ids_to_path']
    search = os.environ['PATH'] + ':/usr/lib/zfs-linux'
    missing = []
    for name in ('zpool', 'zfs', 'zdb', 'zinject', 'arcstat', 'arc_summary'):
        os.symlink('/zts/bin/cenote', f'{directory}/{name}')
        # The suite makes its users members of the group that these have: one that owns nothing.
        os.chown(f'{directory}/{name}', -1, grp.getgrnam('users').gr_gid, follow_symlinks=False)
    os.symlink('/zts/bin/cenote', f'{directory}/cenote')
    os.symlink('/zts/harness/zed.py', f'{directory}/zed')
    for name in ('kstats', 'exportfs'):
        os.symlink(f'/zts/harness/{name}', f'{directory}/{name}')
    for name in dict.fromkeys(own + tools + system + ['flock', 'find', 'setpriv', 'tac']):
        # The system's Python: one in a home folder is out of reach for the users of the cases.
        places = '/usr/bin:' + search if name == 'python3' else search
        at = f'{SUITE}/bin/{name}' if name in own else shutil.which(name, path=places)
        if os.path.lexists(f'{directory}/{name}'):
            continue
        if at is None or not os.path.exists(at):
            missing.append(name)
        else:
            os.symlink(os.path.realpath(at) if name == 'python3' else at, f'{directory}/{name}')
    for name, at in {'fsck': 'fsck.ext4', 'newfs': 'mkfs.ext4', 'compress': 'gzip', 'uncompress': 'gunzip'}.items():
        if not os.path.lexists(f'{directory}/{name}'):
            os.symlink(shutil.which(at, path=search), f'{directory}/{name}')
    # Of loop devices only those of the job are there.
    losetup = shutil.which('losetup', path=search)
    os.unlink(f'{directory}/losetup')
    helpers = {'losetup': LOSETUP.format(losetup=losetup), 'mount.zfs': 'exec /sbin/mount.cenote "$@"'}
    for name, text in helpers.items():
        with open(f'{directory}/{name}', 'w') as file:
            file.write(f'#!/bin/sh\n{text}\n')
        os.chmod(f'{directory}/{name}', 0o755)
    if missing:
        print('not on this machine, so some cases may fail:', *missing, file=sys.stderr)


def make_parameters(directory):
    for part in ('zfs/parameters', 'spl/parameters'):
        os.makedirs(f'{directory}/{part}')
    values = {'../version': '2.3.2', '../../spl/parameters/spl_hostid': 0}
    table = read(f'{SUITE}/include/tunables.cfg').split('cat <<', 1)[-1]
    for line in table.splitlines()[1:]:
        if line.startswith('%%%%'):
            break
        words = line.split()
        if len(words) >= 3 and words[2] != 'UNSUPPORTED':
            values[words[2]] = 0
    values.update(PARAMETERS)
    for name, value in values.items():
        with open(f'{directory}/zfs/parameters/{name}', 'w') as file:
            file.write(f'{value}\n')


def print_runfile(group, out, seconds, only):
    chosen = [case for case in cases() if case.group == group and (not only or case.name in only)]
    chosen = [case for case in chosen if classify(case)[0] in ASKED]
    if not chosen:
        sys.exit(1)
    print('[DEFAULT]', 'quiet = False', 'pre_user = root', 'post_user = root', 'user = root', f'timeout = {seconds}', f'outputdir = {out}',
          'pre = setup', 'post = cleanup', "tags = ['functional']", sep='\n')
    # What stands in a section of its own has its own setup.
    for section in dict.fromkeys(case.section for case in chosen):
        there = [case for case in chosen if case.section == section]
        run = there[0].run
        user = (run['user'] or 'zts') if 'user' in run else 'root'
        print('', f'[{section}]', f'tests = {[case.name for case in there]}', f"pre = {run.get('pre', 'setup')}",
              f"post = {run.get('post', 'cleanup')}", f'user = {user}', "tags = ['functional']", sep='\n')


RESULT = re.compile(r'Test(?: \(\w+\))?: \S*/functional/(\S+)/([^/ ]+) \(run as \S+\) \[[\d:]+\] \[(\w+)\]')


def plain_name(name):
    return re.sub(r'\.(ksh|sh)$', '', name)


def results(text):
    """(group, case) -> its last result."""
    last = {}
    for group, name, result in RESULT.findall(text):
        if plain_name(name) not in ('setup', 'cleanup'):
            last[group, plain_name(name)] = result
    return last


def print_again(output):
    failed = [(name, result) for _, name, result in RESULT.findall(read(output)) if result != 'PASS']
    if failed and plain_name(failed[0][0]) == 'setup':
        return
    names = [name for name, result in failed[1:] if result != 'KILLED' and plain_name(name) not in ('setup', 'cleanup')]
    print(*names, sep='\n', end='\n' if names else '')


FAILING, NOT_RUN = 'Cases that fail, and why', 'Cases that were not run, and why'


def listed_in(text, heading):
    """The cases in the table below a heading, each once."""
    _, _, after = text.partition(f'\n## {heading}\n')
    names = re.findall(r'^\| ([\w./-]+/[\w.-]+) \|', after.partition('\n## ')[0], re.M)
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        sys.exit(f'listed twice: {", ".join(twice)}')
    return set(names)


def full_name(case):
    return f'{case.group}/{plain_name(case.name)}'


def make_head(path):
    """Writes the numbers of all cases, and of each group, into the list."""
    text = read(path)
    failing, not_run = listed_in(text, FAILING), listed_in(text, NOT_RUN)
    names = {full_name(case): case.group for case in asked()}
    wrong = [f'{name} is listed, and is not asked' for name in sorted((failing | not_run) - names.keys())]
    wrong += [f'{name} is in both tables' for name in sorted(failing & not_run)]
    if wrong:
        sys.exit('\n'.join(wrong))

    def numbers(of):
        failed, left = len(of & failing), len(of & not_run)
        return f'| {len(of)} | {len(of) - failed - left} | {failed} | {left} |'

    of_group = {}
    for name, group in names.items():
        of_group.setdefault(group, set()).add(name)
    rows = [f'{numbers(of)} {group} |' for group, of in of_group.items()]
    head = ['| asked | passed | failed | not run |', '|---:|---:|---:|---:|', numbers(names.keys()), '',
            '| asked | passed | failed | not run | group |', '|---:|---:|---:|---:|---|', *rows, '']
    before, _, after = text.partition('| asked | passed |')
    new = before + '\n'.join(head) + '\n## ' + after.partition('\n## ')[2]
    with open(path, 'w') as file:
        file.write(new)
    print(numbers(names.keys()))


def compare(output, expected, only):
    """What fails is to be what the list says; prints what is not so."""
    text = read(output)
    last = results(text)
    list_text = read(expected)
    listed = listed_in(list_text, FAILING) | listed_in(list_text, NOT_RUN)
    failed = {f'{group}/{name}' for (group, name), result in last.items() if result != 'PASS'}
    passed = {f'{group}/{name}' for (group, name), result in last.items() if result == 'PASS'}
    print(f'passed {len(passed)}, failed {len(failed)}')
    plain = {full_name(case) for case in cases() if classify(case)[0] == 'plain'}
    print(f'of those that need no parameters of the module: passed {len(passed & plain)}, failed {len(failed & plain)}')
    surprises = [f'{name} fails, and is not listed' for name in sorted(failed - listed)]
    surprises += [f'{name} passes, although it is listed' for name in sorted(passed & listed)]
    groups = {group for group, _ in last}
    missing = {full_name(case) for case in asked() if case.group in groups and (not only or case.name in only)} - failed - passed
    surprises += [f'{name} has no result' for name in sorted(missing)]
    surprises += re.findall(r'^(?:daemon ended|hangs|not begun): .*$', text, re.M)
    print(*surprises, sep='\n', end='\n' if surprises else '')
    sys.exit(1 if surprises else 0)


def main():
    command, *arguments = sys.argv[1:] or ['']
    if command == 'classes' and not arguments:
        print_classes()
    elif command == 'groups' and not arguments:
        print(*dict.fromkeys(case.group for case in asked()), sep='\n')
    elif command == 'path' and len(arguments) == 1:
        make_path(arguments[0])
    elif command == 'parameters' and len(arguments) == 1:
        make_parameters(arguments[0])
    elif command == 'runfile' and len(arguments) in (3, 4):
        group, out, seconds, *only = arguments
        print_runfile(group, out, int(seconds), [name for name in ','.join(only).split(',') if name])
    elif command == 'again' and len(arguments) == 1:
        print_again(arguments[0])
    elif command == 'compare' and len(arguments) == 2:
        compare(*arguments, [name for name in os.environ.get('CASES', '').split(',') if name])
    elif command == 'head' and len(arguments) == 1:
        make_head(*arguments)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
