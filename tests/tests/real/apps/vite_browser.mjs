// Opens the page in headless Chromium, edits a module, and expects the change without a reload.
import { writeFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [url, file, executablePath, profile] = process.argv.slice(2);
const args = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const context = await chromium.launchPersistentContext(profile, { executablePath, headless: true, args });
const page = await context.newPage();
const shows = (text) => page.waitForFunction((t) => document.getElementById('text')?.textContent === t, text, { timeout: 60_000 });

// Connected only once Vite's client says so; an edit before that would be lost to anyone.
const connected = page.waitForEvent('console', { predicate: (m) => m.text().includes('connected'), timeout: 60_000 });
await page.goto(url);
await shows('before');
await connected;
console.log('ok loaded');
await page.evaluate(() => { window.marker = 'same page'; });
writeFileSync(file, "export const text = 'after';\n");
await shows('after');
if ((await page.evaluate(() => window.marker)) !== 'same page') throw new Error('the page was reloaded');
console.log('ok hot reload');
await context.close();
