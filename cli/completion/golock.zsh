#compdef golock
# Completion of golock for zsh. golock itself knows what fits: see "golock complete".
_golock() {
	local -a lines values shown
	local kind line
	lines=("${(@f)$("${(Q)words[1]}" complete -- "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}")
	kind=$lines[1]
	case $kind in
	command\ *)
		shift $((${kind#command } + 1)) words
		((CURRENT -= ${kind#command } + 1))
		_normal
		return
		;;
	files)
		compset -P '--*='
		_files
		return
		;;
	esac
	for line in "${(@)lines[2,-1]}"; do
		[[ -n $line ]] || continue
		values+=("${line%%$'\t'*}")
		shown+=("${line/$'\t'/  -- }")
	done
	if [[ $kind == part ]]; then
		compadd -S '' -a values
	else
		compadd -l -d shown -a values
	fi
}
if [[ $funcstack[1] == _golock ]]; then
	_golock "$@"
else
	compdef _golock golock
fi
