//go:build linux

package upgrade

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"skerry.dev/skerry/internal/testenv"
)

// The test binary plays the programs, too: what it does hangs on its name, as a file that was staged has the content of a
// shell script that calls it with one.
const playEnv = "SKERRY_UPGRADE_PLAY"

// playSupervisor plays the old program's process during a trial, for TestCutShort to kill.
const playSupervisor = "supervisor"

func TestMain(m *testing.M) {
	if what := os.Getenv(playEnv); what != "" {
		play(what, os.Args[1:])
		return
	}
	os.Exit(testenv.Main(m, testenv.Options{}))
}

// play is a worker's agent: it writes its process id, and what it is, where the test looks.
func play(what string, args []string) {
	if len(args) > 0 && args[0] == "version" {
		fmt.Printf("{\n  \"client\": %q\n}\n", what)
		return
	}
	data := args[1]
	if what == playSupervisor {
		_, _ = supervisorOf(data).Try(context.Background())
		return
	}
	say := func(text string) {
		tmp := filepath.Join(data, "seen.tmp")
		if os.WriteFile(tmp, []byte(fmt.Sprintf("%d %s", os.Getpid(), text)), 0o600) == nil {
			os.Rename(tmp, filepath.Join(data, "seen"))
		}
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	switch strings.TrimRight(what, "0123456789") {
	case "crash":
		os.Exit(3)
	case "late": // well, and then it ends
		say("connected oci ready=a,b")
		time.Sleep(300 * time.Millisecond)
		os.Exit(4)
	case "silent":
		signal.Ignore(syscall.SIGTERM)
		select {}
	case "worse":
		say("connected oci ready=a")
	case "lonely":
		say("oci ready=a,b")
	case "schema":
		db, err := sql.Open("sqlite", filepath.Join(data, "state.db"))
		if err == nil {
			_, err = db.Exec("PRAGMA user_version = 99; CREATE TABLE other (x)")
		}
		if err != nil {
			say("error: " + err.Error())
		}
		db.Close()
		os.Exit(5)
	default:
		say("connected oci ready=a,b")
	}
	<-term
}
