// Drives pages with the Datadog browser SDK in Chromium, and prints what they sent.
//
//   node drive.mjs CHROMIUM PLAN
//
// PLAN is JSON: {"pages": ["URL", ...]}. Each page loads the SDK itself. Printed
// is one JSON object per page: what went through fetch and sendBeacon, with the answer's
// status as the page could see it (0 where the browser kept it from the page).
import { createRequire } from 'node:module'
import path from 'node:path'

const require = createRequire(path.join(process.cwd(), 'package.json'))
const { chromium } = require('playwright-core')

// watch runs in the page before anything else. The SDK takes fetch and sendBeacon
// as it finds them.
function watch() {
  const sent = []
  window.sentRequests = sent
  const bytes = async (body) => {
    const buffer = new Uint8Array(await new Blob([body]).arrayBuffer())
    return btoa(Array.from(buffer, (b) => String.fromCharCode(b)).join(''))
  }
  const realFetch = window.fetch
  window.fetch = async (url, options = {}) => {
    if (window.over) return new Response()
    const entry = { how: 'fetch', url: String(url), body: await bytes(options.body ?? ''), status: -1 }
    sent.push(entry)
    try {
      const response = await realFetch(url, options)
      entry.status = response.status
      return response
    } catch (error) {
      entry.status = 0
      throw error
    }
  }
  const realBeacon = navigator.sendBeacon.bind(navigator)
  navigator.sendBeacon = (url, body) => {
    if (window.over) return true
    const entry = { how: 'beacon', url: String(url), body: '', status: -1, pending: true }
    sent.push(entry)
    bytes(body).then((b) => {
      entry.body = b
      entry.pending = false
    })
    return realBeacon(url, body)
  }
}

const [, , executablePath, plan] = process.argv
const browser = await chromium.launch({
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
})
try {
  for (const url of JSON.parse(plan).pages) {
    const page = await browser.newPage()
    const complaints = []
    page.on('pageerror', (error) => complaints.push(String(error)))
    await page.addInitScript(watch)
    await page.goto(url)
    // The page says when it has done its part. What the SDK would send from then on
    // is not sent, so that what is printed is all.
    await page.waitForFunction(() => window.done === true, null, { timeout: 30000 })
    const sent = await page.evaluate(() => {
      window.over = true
      return window.sentRequests
    })
    const results = await page.evaluate(() => window.results ?? {})
    console.log(JSON.stringify({ url, sent, results, complaints }))
    await page.close()
  }
} finally {
  await browser.close()
}
