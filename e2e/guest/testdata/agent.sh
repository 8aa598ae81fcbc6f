#!/bin/sh
# Runs what the test sends: one line is one script in base64; the answer is one line "@ STATUS OUTPUT ERRORS", the last
# two in base64 behind a dot. The serial line has to pass bytes as they are.
port=/dev/ttyS1
stty -F $port raw -echo 115200
exec <$port >$port
cd /root
export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
dir=$(mktemp -d)
echo '@ ready'
while IFS= read -r line; do
	echo "$line" | base64 -d >$dir/script
	sh $dir/script >$dir/out 2>$dir/err </dev/null
	status=$?
	echo "@ $status .$(base64 -w0 $dir/out) .$(base64 -w0 $dir/err)"
done
