// Package page is what a browser sees on the HTTP port: one page for whoever asks
// who is being dropped, and why.
//
// It is three things:
//
//	assets/   the page itself: HTML, CSS and JavaScript as they are written, embedded
//	History   the last 15 minutes of every class that had traffic, in memory
//	Handler   serves the assets, with headers that let the page load nothing else
//
// The page asks /api/v1/ratecontrol, /api/v1/ratecontrol/history, /api/v1/governor and
// /api/v1/explain of the process that served it, and nothing else anywhere.
//
// Names in it come from policies, label values from senders. The scripts put them
// on the page as text nodes and attributes, never as HTML; the headers forbid
// inline scripts and, where the browser knows trusted types, every way to make
// HTML from a string.
package page
