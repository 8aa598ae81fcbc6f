package placing

import (
	"skerry.dev/skerry/decide/questions"
	"skerry.dev/skerry/decide/sched"
)

// What is asked about instances is the same for a site and for a root.
type (
	Questions = questions.Questions
	Plugin    = questions.Plugin
	Case      = questions.Case
	Measure   = questions.Measure
	Measured  = questions.Measured
	Score     = questions.Score
	Scored    = questions.Scored
)

// MeasureTime is how long workers may measure.
const MeasureTime = questions.MeasureTime

// NewQuestions gives a site with these policies, and without plugins.
func NewQuestions(policies map[string]sched.Policy) *Questions { return questions.New(policies) }
