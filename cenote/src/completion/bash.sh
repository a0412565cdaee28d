# Completion of cenote, zpool, zfs and zdb in bash. To be sourced.
_cenote() {
    local line="${COMP_LINE:0:COMP_POINT}" whole ends candidate
    local -a words
    read -r -a words <<<"$line"
    # Behind a space a new word begins.
    case "$line" in *[[:space:]]) words+=("") ;; esac
    whole="${words[${#words[@]}-1]}"
    # What bash takes for a word ends where this does: candidates begin behind that.
    ends="${whole%"${whole##*[=:@]}"}"
    case "$COMP_WORDBREAKS" in *[=:@]*) ;; *) ends="" ;; esac
    COMPREPLY=()
    while IFS= read -r candidate; do
        COMPREPLY+=("${candidate#"$ends"}")
        case "$candidate" in *[=@/]) compopt -o nospace 2>/dev/null ;; esac
    done < <(cenote complete -- "${words[@]}" 2>/dev/null)
}
complete -o default -F _cenote cenote zpool zfs zdb arcstat arc_summary
