package apps

import (
	"errors"
	"fmt"
	"strings"

	"github.com/robfig/cron/v3"
)

// parseSchedule reads the five fields of a schedule, or a name such as @daily, perhaps behind a time zone ("TZ=Europe/Berlin "). Every
// use of the parser goes through here, because it panics on some texts, such as a time zone alone.
func parseSchedule(text string) (s cron.Schedule, err error) {
	if zone, rest, _ := strings.Cut(text, " "); strings.Contains(zone, "TZ=") && strings.TrimSpace(rest) == "" {
		return nil, errors.New("no schedule follows the time zone")
	}
	defer func() {
		if v := recover(); v != nil {
			s, err = nil, fmt.Errorf("%q is not a schedule: %v", text, v)
		}
	}()
	return cron.ParseStandard(text)
}
