# Completion of golock for fish. golock itself knows what fits: see "golock complete".
function __golock_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l lines ($words[1] complete -- $words[2..-1] (string unescape -- $current; or echo -- $current) 2>/dev/null)
    switch "$lines[1]"
        case 'command *'
            set -l first (math (string replace 'command ' '' -- $lines[1]) + 2)
            set -l rest
            if test $first -le (count $words)
                set rest (string escape -- $words[$first..-1])
            end
            complete --do-complete (string join ' ' -- $rest $current)
        case files
            set -l prefix (string match --regex '^--[^=]*=' -- $current)
            for path in (__fish_complete_path (string replace --regex '^--[^=]*=' '' -- $current))
                echo -- "$prefix$path"
            end
        case '*'
            string join \n -- $lines[2..-1]
    end
end
complete --command golock --no-files --arguments '(__golock_complete)'
