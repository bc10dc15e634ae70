"$NPM/.bin/cline" auth -p openai -k none -m "$MODEL" -b "$GATEWAY/v1" > auth.txt 2>&1 || cat auth.txt
if told=$("$NPM/.bin/cline" --json -t 100 "Say hello" < /dev/null 2> errors.txt); then echo text ok; else echo "text $told"; fi
for each in /proc/[0-9]*; do  # its daemon, which would outlive it
  if tr '\0' ' ' < "$each/cmdline" 2> /dev/null | grep -q -- "--cline-hub-daemon --cwd $HOME "; then kill "${each#/proc/}"; fi
done
