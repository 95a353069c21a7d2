package ingester

// Sender is who an API key belongs to.
type Sender struct {
	Name string
}
