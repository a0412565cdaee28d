# Completion of cenote, zpool, zfs and zdb in fish. To be sourced.
function __cenote_complete
    set -l current (commandline -ct)
    cenote complete -- (commandline -opc) "$current" 2>/dev/null
end
for program in cenote zpool zfs zdb arcstat arc_summary
    complete -c $program -a '(__cenote_complete)'
end
