package bench

// Bars are the values of one series, one for each name of a plot; what is not more than 0 has no bar.
type Bars struct {
	Name   string
	Values []float64
}

// BarPlot draws values beside each other for each name, with a dashed line at goal, as SVG that needs nothing else.
func BarPlot(title, note, yLabel string, names []string, list []Bars, goal float64, goalText string) string {
	c := &chart{title: title, note: note, yLabel: yLabel, ticks: names, goal: goal, goalText: goalText}
	for _, b := range list {
		s := series{name: b.Name, bars: true}
		for i, v := range b.Values {
			if v > 0 {
				s.points = append(s.points, [2]float64{float64(i), v})
			}
		}
		c.series = append(c.series, s)
	}
	return c.svg()
}
