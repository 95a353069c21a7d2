// The last 15 minutes, kept up to date with what is new since the last answer.

export class History {
  constructor() {
    this.sequence = 0;
    this.started = null;
    this.samples = 180;
    this.interval = 5;
    this.streams = {};
    this.inForce = Infinity; // for how many seconds the configuration has been in force
  }

  // take adds an answer. It returns false where the answer belongs to another
  // process than what is kept: then everything is asked for again.
  take(answer) {
    if (this.started !== answer.started_unix_ms) {
      const whole = this.sequence === 0;
      this.sequence = 0;
      this.streams = {};
      this.started = answer.started_unix_ms;
      if (!whole) return false;
    }
    const fresh = Math.min(answer.sequence - this.sequence, answer.samples);
    this.samples = answer.samples;
    this.interval = answer.interval_seconds;
    const streams = {};
    for (const [stream, s] of Object.entries(answer.streams)) {
      const before = this.streams[stream] ?? { classes: {} };
      const next = { received: this.join(before.received, s.received, fresh), relabel: this.join(before.relabel, s.dropped_relabel, fresh), classes: {} };
      for (const [name, c] of Object.entries(s.classes)) {
        const old = Object.hasOwn(before.classes, name) ? before.classes[name] : {};
        Object.defineProperty(next.classes, name, { enumerable: true, value: { admitted: this.join(old.admitted, c.admitted, fresh), dropped: this.join(old.dropped, c.dropped, fresh) } });
      }
      streams[stream] = next;
    }
    this.streams = streams;
    this.sequence = answer.sequence;
    return true;
  }

  // join puts the newest points after the old ones and fills the front with zeros.
  join(old = [], added = [], fresh) {
    const points = old.concat(fresh > 0 ? added.slice(-fresh) : []).slice(-this.samples);
    return points.length < this.samples ? new Array(this.samples - points.length).fill(0).concat(points) : points;
  }

  // window is how many points a curve shows: 15 minutes, less after a start, but
  // two minutes at least.
  window() {
    return Math.min(this.samples, Math.max(this.sequence, Math.round(120 / this.interval)));
  }

  class(stream, name) {
    const classes = this.streams[stream]?.classes ?? {};
    return Object.hasOwn(classes, name) ? classes[name] : null;
  }
}

// recent is the mean of the last 30 seconds, or of what there is of them since the
// start and since the configuration that is in force: a sample at least.
export function recent(points, history) {
  if (!points) return 0;
  const n = Math.max(1, Math.min(history.sequence, Math.floor(history.inForce / history.interval), Math.round(30 / history.interval)));
  return points.slice(-n).reduce((a, b) => a + b, 0) / n;
}
