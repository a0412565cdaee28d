#compdef cenote zpool zfs zdb arcstat arc_summary
# Completion of cenote, zpool, zfs and zdb in zsh. To be sourced.
_cenote() {
    local -a candidates open closed
    candidates=("${(@f)$(cenote complete -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    candidates=(${candidates:#})
    if (( ! $#candidates )); then
        _files
        return
    fi
    open=(${(M)candidates:#*[=@]})
    closed=(${candidates:#*[=@]})
    (( $#open )) && compadd -S '' -- $open
    (( $#closed )) && compadd -- $closed
}
compdef _cenote cenote zpool zfs zdb arcstat arc_summary
