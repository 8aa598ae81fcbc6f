package report

// Bars are the values of one series, one for each name of a plot; what is not more than 0 has no bar.
type Bars struct {
	Name   string
	Values []float64
}

// BarPlot draws values beside each other for each name, with a dashed line at goal, as SVG that needs nothing else.
func BarPlot(title, note, yLabel string, names []string, list []Bars, goal float64, goalText string) string {
	c := &Chart{Title: title, Note: note, YLabel: yLabel, Ticks: names, Goal: goal, GoalText: goalText}
	for _, b := range list {
		s := Series{Name: b.Name, Bars: true}
		for i, v := range b.Values {
			if v > 0 {
				s.Points = append(s.Points, [2]float64{float64(i), v})
			}
		}
		c.Series = append(c.Series, s)
	}
	return c.SVG()
}
