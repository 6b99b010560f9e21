package doctor

// State is the outcome of a check.
type State string

// The outcomes.
const (
	OK State = "ok"
	// Note is something that the operator can do without, or that only costs speed.
	Note State = "note"
	// Failed is a problem to be fixed.
	Failed State = "failed"
	// LeftOut is a check that could not be made, and proves nothing.
	LeftOut State = "left out"
)

// Finding is the result of a check.
type Finding struct {
	// Check names the check in a word or two.
	Check string `json:"check"`
	State State  `json:"state"`
	// Found says what was found.
	Found string `json:"found"`
	// Remedy says what to do; empty if nothing needs to be done.
	Remedy string `json:"remedy"`
}

// String returns the finding without its check and state.
func (f Finding) String() string {
	if f.Remedy == "" {
		return f.Found
	}
	return f.Found + "; " + f.Remedy
}
