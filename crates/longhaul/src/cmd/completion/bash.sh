
# Words that only longhaul knows at the time: interfaces, labs and their hosts, congestion controls.
_longhaul_known() {
    local IFS=$'\n' before known
    before=("${COMP_WORDS[@]:1:COMP_CWORD-1}")
    if ((${#before[@]})); then
        known=$(longhaul completion bash -- "${before[@]}" 2>/dev/null)
        COMPREPLY=($(compgen -W "$known" -- "${COMP_WORDS[COMP_CWORD]}"))
        ((${#COMPREPLY[@]})) && return
    fi
    unset IFS
    _longhaul "$@"
}
complete -F _longhaul_known -o bashdefault -o default longhaul
