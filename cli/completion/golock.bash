# Completion of golock for bash. golock itself knows what fits: see "golock complete".
_golock() {
	local -a words=() lines=()
	local rest=$COMP_LINE trimmed word kind line i cut= quote=
	COMPREPLY=()
	# bash takes "=" and ":" for words of their own: put together what was written together.
	for ((i = 0; i <= COMP_CWORD; i++)); do
		word=${COMP_WORDS[i]}
		trimmed=${rest#"${rest%%[![:space:]]*}"}
		if ((i > 0)) && [[ $trimmed == "$rest" ]]; then
			words[${#words[@]} - 1]+=$word
		else
			words+=("$word")
		fi
		rest=${trimmed#"$word"}
	done
	local -a plain=()
	for word in "${words[@]:1}"; do
		quote=
		[[ $word == [\"\']* ]] && quote=${word:0:1}
		word=${word//[\\\"\']/}
		plain+=("$word")
	done
	mapfile -t lines < <("${words[0]/#\~/$HOME}" complete -- "${plain[@]}" 2>/dev/null)
	kind=${lines[0]-}
	case $kind in
	command\ *)
		local first=$((${kind#command } + 1))
		# Where the command stands in bash's own list of words.
		local at=$COMP_CWORD
		((first < ${#words[@]})) && at=$((COMP_CWORD - (${#words[@]} - 1 - first)))
		if declare -F _command_offset >/dev/null; then
			_command_offset "$at"
		elif ((first >= ${#words[@]} - 1)); then
			mapfile -t COMPREPLY < <(compgen -c -- "$word")
		else
			compopt -o default
		fi
		return
		;;
	files)
		compopt -o default
		return
		;;
	part) compopt -o nospace ;;
	esac
	# Only what stands behind the last "=" or ":" is replaced.
	[[ -z $quote && $word == *[=:]* ]] && cut=${word%"${word##*[=:]}"}
	for line in "${lines[@]:1}"; do
		line=${line%%$'\t'*}
		line=${line#"$cut"}
		case $quote in
		\') line=${line//\'/\'\\\'\'} ;;
		\")
			line=${line//\\/\\\\}
			line=${line//\"/\\\"}
			line=${line//\$/\\\$}
			line=${line//\`/\\\`}
			line=${line//!/\"\'!\'\"}
			;;
		*) printf -v line %q "$line" ;;
		esac
		# readline closes the quotes unless they look closed.
		[[ $quote && $line == *"$quote" ]] && line+=$quote
		COMPREPLY+=("${line//\\:/:}")
	done
}
complete -F _golock golock
