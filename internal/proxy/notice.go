package proxy

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/rolewright/rolewright/internal/text"
)

// notices bounds the log lines about requests that a run may repeat: ten lines of each kind, and
// then one per minute.
type notices struct{ unlooked, hidden, unread, kept rate.Sometimes }

func newNotices() *notices {
	often := func() rate.Sometimes { return rate.Sometimes{First: 10, Interval: time.Minute} }
	return &notices{unlooked: often(), hidden: often(), unread: often(), kept: often()}
}

// maxLogged is more bytes than the path of any object has.
const maxLogged = 1 << 10

func (x *exchange) notice(often *rate.Sometimes, message, reason string) {
	often.Do(func() {
		x.p.log.Info(message, "job", x.s.RunID, "path", text.Clip(x.info.Path, maxLogged), "reason", text.Clip(reason, maxLogged))
	})
}
