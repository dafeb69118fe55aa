
# Words that only longhaul knows at the time: interfaces, labs and their hosts, congestion controls.
_longhaul_known() {
    local before word
    before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    if ((${#before[@]})); then
        COMPREPLY=()
        # Names are of others: `compgen -W` would run what an interface called $(command) says.
        while IFS= read -r word; do
            [[ $word == "${COMP_WORDS[COMP_CWORD]}"* ]] && COMPREPLY+=("$(printf %q "$word")")
        done < <(longhaul completion bash -- "${before[@]}" 2>/dev/null)
        ((${#COMPREPLY[@]})) && return
    fi
    _longhaul "$@"
}
complete -F _longhaul_known -o bashdefault -o default longhaul
