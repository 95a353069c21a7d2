package page

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRecent: the sum over the last half minute forgets what was before it, and a
// class that nobody sent to was offered nothing.
func TestRecent(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHistory(now)
	require.Nil(t, h.Recent("metrics", "a"))
	var admitted, dropped int64
	for i := range int64(20) {
		now, admitted, dropped = now.Add(Interval), admitted+70*i, dropped+30*i
		h.Sample(now, status("metrics", admitted+dropped, 0, class("a", admitted, dropped)))
		if i == 1 {
			require.Equal(t, &Recent{Seconds: 10, Offered: 100, Dropped: 30}, h.Recent("metrics", "a"))
		}
	}
	// 14 to 19 sum up to 99.
	require.Equal(t, &Recent{Seconds: 30, Offered: 9900, Dropped: 2970}, h.Recent("metrics", "a"))
	require.Equal(t, &Recent{Seconds: 30}, h.Recent("metrics", "b"))
}
