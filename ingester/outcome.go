package ingester

// Reason says why a group is invalid.
type Reason uint8

// The reasons; the texts stand in reasonTexts.
const (
	valid Reason = iota
	ReasonMalformedLabels
	ReasonNoLabels
	ReasonNoMetricName
	ReasonEmptyLabelName
	ReasonDuplicateLabel
	ReasonUnsortedLabels
	ReasonInvalidUTF8
	ReasonTooManyLabels
	ReasonLabelNameTooLong
	ReasonLabelValueTooLong
	ReasonLabelsTooLarge
	ReasonBadSymbol
	ReasonEmptySeries
	ReasonMalformedItem
	ReasonTooDeep
	ReasonTooManyAttributes
	reasonCount
)

// outcomeText is what metrics and answers say of a reason.
type outcomeText struct {
	name     string // label value of spillway_invalid_reasons_total
	sentence string // what the sender is told
}

var reasonTexts = [reasonCount]outcomeText{
	valid:                   {"", ""},
	ReasonMalformedLabels:   {"malformed_labels", "a label is not encoded as remote write demands"},
	ReasonNoLabels:          {"no_labels", "a series has no labels"},
	ReasonNoMetricName:      {"no_metric_name", "a series has no __name__ label"},
	ReasonEmptyLabelName:    {"empty_label_name", "a label has an empty name"},
	ReasonDuplicateLabel:    {"duplicate_label", "a label name stands twice in one series"},
	ReasonUnsortedLabels:    {"unsorted_labels", "labels are not sorted by name"},
	ReasonInvalidUTF8:       {"invalid_utf8", "a label, or another text of an item, is not valid UTF-8"},
	ReasonTooManyLabels:     {"too_many_labels", "a series has more labels than limits.label_names allows"},
	ReasonLabelNameTooLong:  {"label_name_too_long", "a label name is longer than limits.label_name_bytes allows"},
	ReasonLabelValueTooLong: {"label_value_too_long", "a label value is longer than limits.label_value_bytes allows"},
	ReasonLabelsTooLarge:    {"labels_too_large", "the labels of a series are larger than limits.label_set_bytes allows"},
	ReasonBadSymbol:         {"bad_symbol", "a label reference has no partner or points outside the symbol table"},
	ReasonEmptySeries:       {"empty_series", "a series has no sample, histogram or exemplar"},
	ReasonMalformedItem:     {"malformed_item", "a data point, log record or span, or what is around it, is not encoded as OTLP demands"},
	ReasonTooDeep:           {"too_deep", "a value holds lists and maps inside each other beyond 32 levels"},
	ReasonTooManyAttributes: {"too_many_attributes", "an item, its resource or its scope has more attributes than otlp.max_attributes allows"},
}

func (r Reason) String() string { return reasonTexts[r].name }
